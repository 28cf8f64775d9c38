// SPDX-License-Identifier: Apache-2.0
//! The open streams: who they are and how messages reach them.
//!
//! Each stream has a bounded queue. Packets, digests and errors are dropped when a client does not take them;
//! arbitration notices are not, so a client whose queue cannot even hold those loses its stream.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_channel::{Receiver, Sender, bounded};
use futures_channel::oneshot;

use super::arbitration::{Arbiter, ClientId, Notices};
use super::error::{Code, Status};
use super::proto::p4::v1::stream_message_response::Update;
use super::proto::p4::v1::{MasterArbitrationUpdate, StreamMessageResponse};
use super::role::Access;

pub type Outgoing = Result<StreamMessageResponse, Status>;

/// Messages that may wait for one client.
const QUEUE: usize = 1024;
/// Streams at once.
const MAX_STREAMS: usize = 512;
/// Streams of one connection that have not arbitrated yet, and for how long they may be open.
const MAX_SILENT_STREAMS: usize = 64;
pub const MAX_SILENCE: Duration = Duration::from_secs(20);
/// Places of a queue that only arbitration notices may take.
const RESERVED: usize = 64;

struct Client {
    queue: Sender<Outgoing>,
    /// A primary that has had its notice: only then it gets packets and digests.
    welcomed: bool,
    /// Until it has arbitrated: its connection.
    silent: Option<SocketAddr>,
    /// Ends the stream when dropped.
    _alive: oneshot::Sender<()>,
}

struct Inner {
    arbiter: Arbiter,
    clients: HashMap<ClientId, Client>,
    last_id: ClientId,
}

/// Handle that a stream gets when it opens.
pub struct Opened {
    pub id: ClientId,
    pub queue: Sender<Outgoing>,
    /// Resolves when the stream has to end because its client takes no messages.
    pub stalled: oneshot::Receiver<()>,
}

pub struct Clients {
    inner: Mutex<Inner>,
    lost: AtomicU64,
}

impl Clients {
    pub fn new(device_id: u64) -> Self {
        let (arbiter, clients) = (Arbiter::new(device_id), HashMap::new());
        Clients { inner: Mutex::new(Inner { arbiter, clients, last_id: 0 }), lost: AtomicU64::new(0) }
    }

    /// Locks the clients. Nothing in here can panic half-way, so a poisoned lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a stream; its messages come out of the receiver.
    pub fn open(&self, peer: Option<SocketAddr>) -> Result<(Opened, Receiver<Outgoing>), Status> {
        let (queue, outgoing) = bounded(QUEUE);
        let (alive, stalled) = oneshot::channel();
        let mut inner = self.lock();
        if inner.clients.len() == MAX_STREAMS {
            return Err(Status::new(Code::ResourceExhausted, format!("{MAX_STREAMS} streams are open")));
        }
        let silent = inner.clients.values().filter(|client| client.silent.is_some() && client.silent == peer);
        if silent.count() >= MAX_SILENT_STREAMS {
            let reason = format!("{MAX_SILENT_STREAMS} streams of this connection have not arbitrated yet");
            return Err(Status::new(Code::ResourceExhausted, reason));
        }
        inner.last_id += 1;
        let id = inner.last_id;
        inner.clients.insert(id, Client { queue: queue.clone(), welcomed: false, silent: peer, _alive: alive });
        Ok((Opened { id, queue, stalled }, outgoing))
    }

    pub fn close(&self, client: ClientId) {
        let mut inner = self.lock();
        inner.clients.remove(&client);
        let notices = inner.arbiter.disconnect(client);
        inner.deliver(notices);
    }

    /// Handles an arbitration message; answers whether the client is now primary and waits for its notice, which
    /// `welcome_primary` sends.
    pub fn arbitrate(&self, client: ClientId, update: &MasterArbitrationUpdate) -> Result<bool, Status> {
        let mut inner = self.lock();
        let was_primary = inner.arbiter.is_primary(client);
        let notices = inner.arbiter.update(client, update)?;
        if let Some(client) = inner.clients.get_mut(&client) {
            client.silent = None;
            client.welcomed &= was_primary;
        }
        Ok(inner.deliver(notices))
    }

    /// Reports the new primary; to be called once the writes of the former one have ended.
    pub fn welcome_primary(&self, client: ClientId) {
        let mut inner = self.lock();
        // By now there may be another one, who has told everybody.
        if inner.arbiter.is_primary(client)
            && let Some(notice) = inner.arbiter.notice(client)
        {
            inner.deliver(Notices { now: vec![(client, notice)], after_writes: None });
            if let Some(client) = inner.clients.get_mut(&client) {
                client.welcomed = true;
            }
        }
    }

    /// Describes a client's part in the election of its role, for the log.
    pub fn describe(&self, client: ClientId) -> Option<String> {
        self.lock().arbiter.describe(client)
    }

    pub fn is_primary(&self, client: ClientId) -> bool {
        self.lock().arbiter.is_primary(client)
    }

    pub fn with_arbiter<T>(&self, ask: impl FnOnce(&Arbiter) -> T) -> T {
        ask(&self.lock().arbiter)
    }

    /// Offers a message to every primary that it is for; answers whether one took it.
    pub fn send_to_primaries(&self, message: Update, is_for: impl Fn(&Access, &Update) -> bool) -> bool {
        let inner = self.lock();
        let mut taken = false;
        let primaries = inner.arbiter.primaries().filter(|(_, access)| is_for(access, &message));
        for client in primaries.filter_map(|(id, _)| inner.clients.get(&id)).filter(|client| client.welcomed) {
            let sent = offer(&client.queue, message.clone());
            self.lost.fetch_add(!sent as u64, Relaxed);
            taken |= sent;
        }
        taken
    }

    /// Messages that their clients did not take in time.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

impl Inner {
    /// Sends what can be sent now; answers whether a new primary waits.
    fn deliver(&mut self, mut notices: Notices) -> bool {
        let waits = notices.after_writes.is_some();
        while let Some((to, notice)) = notices.now.pop() {
            let message = StreamMessageResponse { update: Some(Update::Arbitration(notice)) };
            let lost = self.clients.get(&to).is_some_and(|client| client.queue.try_send(Ok(message)).is_err());
            if lost {
                self.clients.remove(&to);
                notices.now.extend(self.arbiter.disconnect(to).now);
            }
        }
        waits
    }
}

/// Queues a message that may be lost.
pub fn offer(queue: &Sender<Outgoing>, message: Update) -> bool {
    queue.len() + RESERVED < QUEUE && queue.try_send(Ok(StreamMessageResponse { update: Some(message) })).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::p4::v1::{PacketIn, Uint128};

    fn hello(id: u64) -> MasterArbitrationUpdate {
        MasterArbitrationUpdate { device_id: 1, election_id: Some(Uint128 { high: 0, low: id }), ..Default::default() }
    }

    fn status(outgoing: &Receiver<Outgoing>) -> i32 {
        match outgoing.try_recv() {
            Ok(Ok(StreamMessageResponse { update: Some(Update::Arbitration(notice)) })) => notice.status.unwrap().code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_primary_that_takes_nothing_loses_packets_but_keeps_its_stream() {
        let clients = Clients::new(1);
        let (mut primary, outgoing) = clients.open(None).unwrap();
        assert!(clients.arbitrate(primary.id, &hello(5)).unwrap());
        assert!(!clients.send_to_primaries(Update::Packet(PacketIn::default()), |_, _| true), "its notice comes first");
        clients.welcome_primary(primary.id);
        let sent = (0..2 * QUEUE)
            .filter(|_| clients.send_to_primaries(Update::Packet(PacketIn::default()), |_, _| true))
            .count();
        assert_eq!(sent, QUEUE - RESERVED - 1);
        assert_eq!(clients.lost() as usize, 2 * QUEUE - sent);
        assert_eq!(status(&outgoing), Code::Ok as i32);
        assert!(primary.stalled.try_recv() == Ok(None));
    }

    #[test]
    fn a_client_that_takes_no_notices_is_closed_and_the_others_hear_of_it() {
        let clients = Clients::new(1);
        let (mut stalled, _full) = clients.open(None).unwrap();
        let (backup, outgoing) = clients.open(None).unwrap();
        clients.arbitrate(backup.id, &hello(1)).unwrap();
        clients.welcome_primary(backup.id);
        assert_eq!(status(&outgoing), Code::Ok as i32);
        clients.arbitrate(stalled.id, &hello(2)).unwrap();
        assert_eq!(status(&outgoing), Code::AlreadyExists as i32);
        for _ in 0..=QUEUE {
            clients.welcome_primary(stalled.id);
        }
        assert!(stalled.stalled.try_recv() == Err(oneshot::Canceled));
        assert_eq!(status(&outgoing), Code::NotFound as i32);
    }
}
