// SPDX-License-Identifier: Apache-2.0
//! Received frames for clients that trace, and a copy of what was written to explain them with.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use apswitch_core::program::{Program, Value};
use apswitch_core::store::Store;
use apswitch_core::tap::{Filter, Tap, Tapped};
use futures_channel::oneshot;

use super::{Dataplane, PortNumber, UpdateError};
use crate::block_on;
use crate::engine_messages::Command;

impl Dataplane {
    /// Takes copies of received frames: of one port or of all, with these values of header fields. Returns when it does;
    /// ends when the program is replaced. Waits for the packet thread.
    pub fn tap(
        &self,
        port: Option<PortNumber>,
        conditions: &[(String, Value)],
    ) -> Result<(Arc<Program>, Tapped), UpdateError> {
        loop {
            let program = self.read(|store| Ok(store.program.clone()))?;
            let filter = Filter::new(&program, port, conditions).map_err(UpdateError::InvalidArgument)?;
            let (tap, tapped) = Tap::new(filter);
            let (done, answer) = oneshot::channel();
            {
                // Held until the tap is on its way: it arrives before another program does.
                let store = self.inner.store();
                if !store.as_ref().is_some_and(|store| Arc::ptr_eq(&store.program, &program)) {
                    continue;
                }
                self.inner.commands.send(Command::Tap { tap: Box::new(tap), done });
            }
            return block_on(answer).map(|()| (program, tapped)).map_err(|_| UpdateError::Stopped);
        }
    }

    /// Number of writes so far: another one means that [`Dataplane::written`] has changed.
    pub fn writes(&self) -> u64 {
        self.inner.writes.load(Relaxed)
    }

    /// Copies what was written to the running program, for reading.
    pub fn written(&self) -> Result<Store, UpdateError> {
        self.read(|store| Ok(store.to_read()))
    }

    pub fn cpu_port(&self) -> Option<PortNumber> {
        self.inner.cpu_port
    }
}
