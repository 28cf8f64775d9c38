// SPDX-License-Identifier: Apache-2.0
//! Connections to the remote proxy that are open before a program asks for one. A request over a new connection waits for TCP's
//! handshake, the hello and the seal; over a spare one it is sent at once, so that a program's connect takes one round
//! trip, as a plain one does.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use clap::Args;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use crate::Connection;

/// Maximum age of a spare connection, and time without a request after which none is kept. The remote proxy waits twice
/// as long.
pub const LAPSE: Duration = Duration::from_secs(300);
/// Pause before the next attempt to open one.
const RETRY: Duration = Duration::from_secs(10);

#[derive(Args)]
pub struct SpareOptions {
    /// Spare connections to the remote proxy that are kept open for programs to come, with --key-file, until five
    /// minutes after the last one. A browser has six connections, each of which is over after two round trips; a new
    /// spare one takes three
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(..=128))]
    pub spare: u16,
}

struct SpareConnection {
    connection: Connection,
    since: Instant,
    /// Permit; when dropped, another connection may be opened
    _slot: OwnedSemaphorePermit,
}

/// Pool of spare connections.
pub struct SparePool {
    ready: Mutex<VecDeque<SpareConnection>>,
    slots: Arc<Semaphore>,
    last_request: Mutex<Instant>,
    /// Notified by each request, so that a pool that lapsed fills again.
    woken: Notify,
}

impl SparePool {
    /// Make an empty pool. `max`: connections kept open; 0: none.
    pub fn new(max: u16) -> Self {
        let slots = Arc::new(Semaphore::new(max.into()));
        Self { ready: Mutex::default(), slots, last_request: Mutex::new(Instant::now()), woken: Notify::new() }
    }

    /// Take the oldest connection that is still usable.
    pub fn take(&self) -> Option<Connection> {
        *self.last_request.lock().expect("no holder panics") = Instant::now();
        self.woken.notify_one();
        self.purge();
        self.ready().pop_front().map(|spare| spare.connection)
    }

    /// Keep the pool full until the process ends: open one by `open` for each that is taken or lapses.
    pub async fn keep<F>(self: Arc<Self>, open: impl Fn() -> F)
    where
        F: Future<Output = io::Result<Connection>> + Send + 'static,
    {
        loop {
            let wanted = self.last_request.lock().expect("no holder panics").elapsed() < LAPSE;
            tokio::select! {
                slot = self.slots.clone().acquire_owned(), if wanted => {
                    let (spares, opened) = (self.clone(), open());
                    tokio::spawn(async move {
                        let slot = slot.expect("it is never closed");
                        match opened.await {
                            Ok(connection) => {
                                spares.ready().push_back(SpareConnection { connection, since: Instant::now(), _slot: slot });
                            }
                            // A request that needs one gets the error; here the slot just stays empty for a while.
                            Err(_) => sleep(RETRY).await,
                        }
                    });
                }
                () = sleep(RETRY) => self.purge(),
                () = self.woken.notified() => {}
            }
        }
    }

    /// Drop connections that are too old, or broken.
    fn purge(&self) {
        let mut ready = self.ready();
        let serves = |spare: &SpareConnection| spare.since.elapsed() < LAPSE && spare.connection.is_quiet();
        let (serve, gone): (VecDeque<_>, VecDeque<_>) = ready.drain(..).partition(serves);
        *ready = serve;
        drop(ready);
        drop(gone); // not while it is locked
    }

    fn ready(&self) -> MutexGuard<'_, VecDeque<SpareConnection>> {
        self.ready.lock().expect("no holder panics")
    }
}
