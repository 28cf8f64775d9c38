// SPDX-License-Identifier: Apache-2.0
//! Ports that come and go while packets flow.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, mpsc};

use apswitch_core::port::PortNumber;
use apswitch_core::state::DROP_PORT;
use apswitch_core::v1model::Port;
use futures_channel::oneshot;

use super::{Dataplane, PortHandle, UpdateError, links, locked, open_error, open_interface};
use crate::block_on;
use crate::engine::BlockingTask;
use crate::engine_messages::{Command, Line};
use crate::port::{PortConfig, PortIo, mtu};

/// A port that is to come.
#[derive(Clone, Debug)]
pub struct NewPort {
    pub config: PortConfig,
    /// Takes and sends frames; see [`Dataplane::set_enabled`].
    pub enabled: bool,
}

/// One whose interface is being opened, and one that is open; nobody has heard of either.
struct Opening {
    new: NewPort,
    port: Port,
    opened: oneshot::Receiver<io::Result<Box<dyn PortIo>>>,
}

struct Open {
    handle: PortHandle,
    port: Port,
    line: Line,
}

type Removed = oneshot::Receiver<Option<(Port, Line)>>;

impl Dataplane {
    /// Adds a port on a network interface, behind the others; the others go on. Queues are those of its link model.
    pub async fn add_port(&self, config: PortConfig) -> Result<(), UpdateError> {
        self.change_ports(&[], vec![NewPort { config, enabled: true }]).await
    }

    /// Adds a port as [`Dataplane::add_port`] does, for callers without an async runtime.
    pub fn add_port_blocking(&self, config: PortConfig) -> Result<(), UpdateError> {
        block_on(self.add_port(config))
    }

    /// Takes a port away; what waits in its queues is dropped, and counted. The CPU port stays.
    pub async fn remove_port(&self, number: PortNumber) -> Result<(), UpdateError> {
        self.change_ports(&[number], Vec::new()).await
    }

    /// Removes a port as [`Dataplane::remove_port`] does, for callers without an async runtime.
    pub fn remove_port_blocking(&self, number: PortNumber) -> Result<(), UpdateError> {
        block_on(self.remove_port(number))
    }

    /// Takes ports away and adds others, all or nothing, the interfaces of which must not be those of any other port.
    /// Ends when the kernel has closed what is gone, so that who changes ports without end has no more of them open
    /// than there are.
    pub async fn change_ports(&self, leaving: &[PortNumber], coming: Vec<NewPort>) -> Result<(), UpdateError> {
        let opening = coming.into_iter().map(|new| self.begin_open(new)).collect::<Result<Vec<_>, _>>()?;
        let (mut open, mut failure) = (Vec::new(), None);
        for Opening { new, port, opened } in opening {
            let io = opened.await.map_err(|_| UpdateError::Stopped)?;
            match self.end_open(new, port, io) {
                Ok(port) => open.push(port),
                Err(error) => failure = Some(error),
            }
        }
        let changed = match failure {
            None => self.begin_change(leaving, &mut open),
            Some(error) => Err(error),
        };
        // Ports that did not come.
        open.into_iter().for_each(|open| self.close(open.line));
        for removed in changed? {
            if let Some((_, line)) = removed.await.map_err(|_| UpdateError::Stopped)? {
                self.close(line);
            }
        }
        let (done, closed) = oneshot::channel();
        let _ = self.inner.blocking_tasks.send(BlockingTask::Notify(done));
        // Without a thread for blocking tasks it is closed already: the switch ends.
        let _ = closed.await;
        Ok(())
    }

    fn begin_open(&self, new: NewPort) -> Result<Opening, UpdateError> {
        let inner = &*self.inner;
        let (number, interface) = (new.config.number, &new.config.interface);
        let invalid = |message: String| Err(UpdateError::InvalidArgument(format!("port {number}: {message}")));
        if !inner.interfaces {
            let message = "the ports of this switch are files or memory: start it on network interfaces to add one";
            return Err(UpdateError::FailedPrecondition(message.into()));
        }
        if number as u64 >= DROP_PORT || inner.cpu_port == Some(number) {
            return invalid(format!("give a number below {DROP_PORT} that is not the CPU port's"));
        }
        inner.make_room(mtu(interface).map_err(|e| failed(&new.config, &e))?);
        let port = Port::new(number, new.config.link.clone(), inner.seed);
        let (done, opened) = oneshot::channel();
        let task = BlockingTask::Open { interface: interface.clone(), done };
        inner.blocking_tasks.send(task).map_err(|_| UpdateError::Stopped)?;
        Ok(Opening { new, port, opened })
    }

    fn end_open(&self, new: NewPort, port: Port, io: io::Result<Box<dyn PortIo>>) -> Result<Open, UpdateError> {
        let NewPort { config, enabled } = new;
        let io = io.map_err(|e| failed(&config, &e))?;
        let handle = PortHandle::new(&config, &port);
        // The store has to hear of it.
        handle.up_in_store.store(false, Relaxed);
        locked(&handle.oper_status).enabled = enabled;
        handle.up.store(enabled, Relaxed);
        let capture = self.inner.capture.as_deref();
        let line = handle.line(io, capture).map_err(UpdateError::FailedPrecondition)?;
        Ok(Open { handle, port, line: Line { enabled, ..line } })
    }

    /// Takes out of `coming` what comes: all or, with an error, nothing.
    fn begin_change(&self, leaving: &[PortNumber], coming: &mut Vec<Open>) -> Result<Vec<Removed>, UpdateError> {
        let inner = &*self.inner;
        // Held, so that nobody else takes a number meanwhile.
        let mut ports = inner.ports.write().unwrap_or_else(PoisonError::into_inner);
        let (gone, mut after): (Vec<_>, Vec<_>) =
            ports.iter().cloned().partition(|port| leaving.contains(&port.number));
        if let Some(number) = leaving.iter().find(|number| !gone.iter().any(|port| port.number == **number)) {
            return Err(UpdateError::NotFound(format!("port {number}")));
        }
        let mut interfaces: Vec<(PortNumber, &str)> =
            after.iter().map(|port| (port.number, port.interface.as_str())).collect();
        for Open { handle, .. } in &*coming {
            let (number, interface) = (handle.number, handle.interface.as_str());
            let same = |other: &&(PortNumber, &str)| other.0 == number || other.1 == interface;
            if let Some((number, interface)) = interfaces.iter().find(same) {
                return Err(UpdateError::AlreadyExists(format!("port {number} ({interface})")));
            }
            interfaces.push((number, interface));
        }
        let mut removed = Vec::new();
        for port in &gone {
            let (done, answer) = oneshot::channel();
            if !inner.commands.send(Command::RemovePort { port: port.number, done }) {
                return Err(UpdateError::Stopped);
            }
            removed.push(answer);
        }
        for Open { handle, port, line } in coming.drain(..) {
            if !inner.commands.send(Command::AddPort(Box::new((port, line)))) {
                return Err(UpdateError::Stopped);
            }
            tracing::info!("port {} ({}) was added", handle.number, handle.interface);
            after.push(Arc::new(handle));
        }
        *ports = after;
        drop(ports);
        for port in gone {
            // Groups that watch the port get to know that it is down.
            links::remove(inner, &port);
            tracing::info!("port {} ({}) was removed", port.number, port.interface);
        }
        links::report_to_store(inner, &mut inner.store());
        Ok(removed)
    }

    /// The socket of a port that is gone is closed where one may wait for that.
    fn close(&self, line: Line) {
        if let Some(io) = line.io {
            let _ = self.inner.blocking_tasks.send(BlockingTask::Close(io));
        }
    }
}

fn failed(config: &PortConfig, error: &io::Error) -> UpdateError {
    let text = format!("port {}: {}", config.number, open_error(&config.interface, error));
    match error.raw_os_error() {
        Some(libc::ENODEV) => {
            UpdateError::NotFound(format!("interface `{}`: create it, or correct its name", config.interface))
        }
        Some(libc::EPERM | libc::EACCES) => UpdateError::PermissionDenied(text),
        _ => UpdateError::FailedPrecondition(text),
    }
}

/// Opens and closes what carries frames, until the switch stops.
pub fn run_blocking_tasks(tasks: &mpsc::Receiver<BlockingTask>) {
    for task in tasks {
        match task {
            BlockingTask::Close(io) => drop(io),
            // A caller that has gone meanwhile wants nothing, neither here nor below.
            BlockingTask::Open { interface, done } => {
                let _ = done.send(open_interface(&interface));
            }
            BlockingTask::Notify(done) => {
                let _ = done.send(());
            }
            BlockingTask::End => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::control::{Aside, DataplaneConfig, at_once};
    use crate::port::MemoryPort;

    #[test]
    fn an_interface_that_comes_back_is_that_of_its_port_only() {
        let ports = vec![PortConfig { number: 1, interface: "memory".into(), link: None }];
        let (cpu_port, capture, aside) = (None, None, at_once as Aside);
        let config = DataplaneConfig { ports, cpu_port, priority_queues: 8, seed: 1, capture, aside };
        let (dataplane, _events, ends) = Dataplane::start_in_memory(config).unwrap();
        // An interface of a port that had the number before.
        let (line, _end) = MemoryPort::pair().unwrap();
        dataplane.inner.commands.send(Command::Open { failed: Arc::default(), io: Box::new(line) });
        assert!(ends[0].send(&[7; 60]));
        let deadline = Instant::now() + Duration::from_secs(60);
        while dataplane.ports()[0].stats.rx_packets == 0 {
            assert!(Instant::now() < deadline, "its own interface is lost");
            std::thread::sleep(Duration::from_millis(1));
        }
        dataplane.stop();
    }
}
