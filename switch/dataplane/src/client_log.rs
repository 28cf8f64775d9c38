// SPDX-License-Identifier: Apache-2.0
//! Lines of the log about clients: connections, mastership, refused writes. Clients do not fill it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

use apswitch_core::throttle::{LINES, Throttle};

use crate::peer::Peer;

/// Limit of all clients together, and the start of its clock.
static LIMIT: LazyLock<(Instant, Mutex<Throttle>)> = LazyLock::new(|| (Instant::now(), Mutex::default()));

/// Logs a line about a client; `None` is one in this process, which needs none.
pub fn log(peer: Option<&Peer>, line: fmt::Arguments<'_>) {
    if let Some(peer) = peer {
        write(peer, line);
    }
}

/// Logs a line about a client that is not yet known by its certificate.
pub fn log_address(address: SocketAddr, line: fmt::Arguments<'_>) {
    write(&address, line);
}

fn write(client: &dyn fmt::Display, line: fmt::Arguments<'_>) {
    let (start, throttle) = &*LIMIT;
    let now = start.elapsed().as_nanos() as u64;
    let Some(silent) = throttle.lock().unwrap_or_else(PoisonError::into_inner).pass(now) else { return };
    if silent > 0 {
        tracing::info!("{silent} more lines that clients caused were not written: {LINES} a second are");
    }
    tracing::info!("client {client}: {line}");
}
