// SPDX-License-Identifier: Apache-2.0
//! Bounded number of slots for clients that have not proved who they are. When all are taken, the source that has the
//! most gives up its oldest: a client that floods a server with connections evicts its own.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Notify;

/// Connections that wait to be accepted. Clients beyond it retry after a second, so a flood is accepted and evicts its
/// own, rather than left outside together with everybody else. As many as Linux allows (somaxconn).
pub const BACKLOG: u32 = 4096;

/// Listen on a TCP address.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

type Evict = Box<dyn FnOnce() + Send>;

/// Slots for connections; clones share them.
#[derive(Clone)]
pub struct ConnectionSlots(Arc<Mutex<Table>>);

struct Table {
    max: usize,
    next: u64,
    taken: HashMap<u64, (IpAddr, Evict)>,
    /// Numbers of each source's slots, oldest first.
    sources: HashMap<IpAddr, BTreeSet<u64>>,
}

/// Slot that is taken until this is dropped.
pub struct ConnectionSlot {
    table: Arc<Mutex<Table>>,
    number: u64,
}

impl ConnectionSlots {
    /// Make `max` slots, at least one.
    pub fn new(max: usize) -> Self {
        let (taken, sources) = (HashMap::new(), HashMap::new());
        Self(Arc::new(Mutex::new(Table { max: max.max(1), next: 0, taken, sources })))
    }

    /// Take a slot for a client from `from`. `evict` is called, at any time and on any thread, if the slot is evicted.
    pub fn take(&self, from: IpAddr, evict: impl FnOnce() + Send + 'static) -> ConnectionSlot {
        let mut table = lock(&self.0);
        let number = table.next;
        table.next += 1;
        table.taken.insert(number, (source(from), Box::new(evict)));
        table.sources.entry(source(from)).or_default().insert(number);
        let evicted = (table.taken.len() > table.max).then(|| table.make_room());
        drop(table);
        if let Some(evict) = evicted {
            evict();
        }
        ConnectionSlot { table: self.0.clone(), number }
    }

    /// Run `work` in a slot for a client from `from`; `None` if the slot was evicted before the work ended.
    pub async fn hold<T>(&self, from: IpAddr, work: impl Future<Output = T>) -> Option<T> {
        let evicted = Arc::new(Notify::new());
        let notify = evicted.clone();
        let _slot = self.take(from, move || notify.notify_one());
        tokio::select! {
            done = work => Some(done),
            () = evicted.notified() => None,
        }
    }
}

impl Table {
    /// Evict the oldest slot of the source that has the most, of the one that came first if several have.
    fn make_room(&mut self) -> Evict {
        let most = |numbers: &&BTreeSet<u64>| (numbers.len(), Reverse(numbers.first().copied()));
        let oldest = self.sources.values().max_by_key(most).and_then(BTreeSet::first).copied();
        oldest.and_then(|number| self.free(number)).expect("there are more than slots")
    }

    fn free(&mut self, number: u64) -> Option<Evict> {
        let (source, evict) = self.taken.remove(&number)?;
        if let Some(numbers) = self.sources.get_mut(&source) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.sources.remove(&source);
            }
        }
        Some(evict)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let left = lock(&self.table).free(self.number);
        drop(left); // not while the table is locked
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().expect("no holder panics")
}

/// Raise the soft limit of this process's descriptors to the hard limit.
pub fn raise_descriptor_limit() {
    // SAFETY: the kernel writes and reads one rlimit. A failure leaves the limit as it is.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Return the source that an address counts as: an IPv4 address, or a /64, of which one host has all addresses.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_flood_pushes_out_its_own() {
        let (slots, (gone, evicted)) = (ConnectionSlots::new(4), channel());
        let take = |from: &str, name: u32| {
            let gone = gone.clone();
            slots.take(from.parse().unwrap(), move || gone.send(name).unwrap())
        };
        let quiet = take("192.0.2.1", 0);
        let flood: Vec<_> = (1..=10).map(|name| take("192.0.2.2", name)).collect();
        assert_eq!(evicted.try_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
        drop(flood);
        let _others: Vec<_> = (11..=13).map(|name| take(&format!("2001:db8::{name}"), name)).collect();
        assert_eq!(evicted.try_iter().count(), 0, "a slot is free again when it is dropped");
        let _more = take("192.0.2.3", 14);
        assert_eq!(evicted.try_iter().collect::<Vec<_>>(), [11], "a /64 is one source");
        drop(quiet);
        let _last = take("192.0.2.4", 15);
        assert_eq!(evicted.try_iter().count(), 0);
    }

    #[tokio::test]
    async fn work_ends_when_it_has_to_make_room() {
        let (slots, from) = (ConnectionSlots::new(1), "192.0.2.1".parse().unwrap());
        let idle = tokio::spawn({
            let slots = slots.clone();
            async move { slots.hold(from, std::future::pending::<()>()).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(slots.hold(from, async { 7 }).await, Some(7));
        assert_eq!(idle.await.unwrap(), None);
    }
}
