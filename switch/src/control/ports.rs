// SPDX-License-Identifier: Apache-2.0
//! Ports that come and go while packets flow.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use tokio::sync::oneshot;

use super::{Dataplane, FRAME_OVERHEAD, PortHandle, UpdateError, links, open_error, open_interface};
use crate::command::Command;
use crate::engine::Line;
use crate::machine::DROP_PORT;
use crate::port::{PortConfig, PortNumber, mtu};
use crate::v1model::Port;

type Removed = oneshot::Receiver<Option<(Port, Line)>>;

impl Dataplane {
    /// Adds a port on a network interface, behind the others; the others go on. Queues are those of its link model.
    pub fn add_port(&self, config: PortConfig) -> Result<(), UpdateError> {
        let inner = &*self.inner;
        let (number, interface) = (config.number, &config.interface);
        let invalid = |message: String| Err(UpdateError::InvalidArgument(format!("port {number}: {message}")));
        if !inner.interfaces {
            let message = "the ports of this switch are files or memory: start it on network interfaces to add one";
            return Err(UpdateError::FailedPrecondition(message.into()));
        }
        if number as u64 >= DROP_PORT || inner.cpu_port == Some(number) {
            return invalid(format!("give a number below {DROP_PORT} that is not the CPU port's"));
        }
        self.check_free(&config)?;
        let failed = |e| UpdateError::FailedPrecondition(format!("port {number}: {}", open_error(interface, &e)));
        let (mtu, longest) = (mtu(interface).map_err(failed)?, inner.longest_frame - FRAME_OVERHEAD);
        if mtu > longest {
            return invalid(format!(
                "the MTU of `{interface}` is {mtu}, and the switch was started for {longest}: lower it (ip link set \
                 {interface} mtu {longest}), or start the switch with a port of that MTU"
            ));
        }
        let port = Port::new(number, config.link.clone(), inner.seed);
        let io = open_interface(interface, inner.io_threads, inner.longest_frame, &port.cells).map_err(failed)?;
        let handle = PortHandle::new(&config, &port);
        // The store has to hear of it.
        handle.told.store(false, Relaxed);
        let line = handle.line(io, inner.capture.as_deref()).map_err(UpdateError::FailedPrecondition)?;
        // Again, and held, as another one may have come meanwhile.
        let mut ports = inner.ports.write().unwrap_or_else(PoisonError::into_inner);
        free(&ports, &config)?;
        if !inner.commands.send(Command::AddPort(Box::new((port, line)))) {
            return Err(UpdateError::Stopped);
        }
        ports.push(Arc::new(handle));
        drop(ports);
        links::tell_store(inner, &mut inner.store());
        tracing::info!("port {number} ({interface}) was added");
        Ok(())
    }

    /// Takes a port away; what waits in its queues is dropped, and counted. The CPU port stays.
    pub async fn remove_port(&self, number: PortNumber) -> Result<(), UpdateError> {
        let removed = self.begin_remove_port(number)?;
        self.removed(removed.await.map_err(|_| UpdateError::Stopped)?);
        Ok(())
    }

    /// As [`Dataplane::remove_port`], for callers without an async runtime.
    pub fn remove_port_blocking(&self, number: PortNumber) -> Result<(), UpdateError> {
        let removed = self.begin_remove_port(number)?;
        self.removed(removed.blocking_recv().map_err(|_| UpdateError::Stopped)?);
        Ok(())
    }

    fn check_free(&self, config: &PortConfig) -> Result<(), UpdateError> {
        free(&self.inner.ports(), config)
    }

    fn begin_remove_port(&self, number: PortNumber) -> Result<Removed, UpdateError> {
        let mut ports = self.inner.ports.write().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = ports.iter().position(|port| port.number == number) else {
            return Err(UpdateError::NotFound(format!("port {number} does not exist")));
        };
        let (done, answer) = oneshot::channel();
        if !self.inner.commands.send(Command::RemovePort { port: number, done }) {
            return Err(UpdateError::Stopped);
        }
        let port = ports.remove(place);
        drop(ports);
        // Whoever watches it learns that it is down.
        links::remove(&self.inner, &port);
        tracing::info!("port {number} ({}) was removed", port.interface);
        Ok(answer)
    }

    /// Its socket is closed where one may wait for that.
    fn removed(&self, removed: Option<(Port, Line)>) {
        if let Some(io) = removed.and_then(|(_, line)| line.io) {
            let _ = self.inner.closing.send(io);
        }
    }
}

/// Nothing else has the number or the interface.
fn free(ports: &[Arc<PortHandle>], config: &PortConfig) -> Result<(), UpdateError> {
    let other = ports.iter().find(|port| port.number == config.number || port.interface == config.interface);
    match other {
        None => Ok(()),
        Some(port) => Err(UpdateError::AlreadyExists(format!("port {} is {} already", port.number, port.interface))),
    }
}
