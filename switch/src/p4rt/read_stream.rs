// SPDX-License-Identifier: Apache-2.0
//! The messages of a `Read`: bounded portions, as fast as the client takes them, of a bounded number of snapshots. Long
//! ones are made on threads of their own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::error::{Checked, batch_status};
use super::proto::p4::v1 as p4;
use super::read::Answer;

pub type ReadStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<p4::ReadResponse, Status>> + Send>>;

/// Answers of several portions that may be under way at once, of all connections and of one: each holds a snapshot.
const MAX_READS: usize = 16;
const MAX_READS_PER_CONNECTION: usize = 4;
/// A read whose client takes nothing for so long ends.
const STALL: Duration = Duration::from_secs(10);
/// A `ReadResponse` is sent when its entities have this many bytes; clients take 4 MiB by default.
const CHUNK_BYTES: usize = 256 << 10;

/// KiB that all reads under way may have copied.
const MAX_READ_KIB: usize = 256 << 10;

/// The reads under way, by connection.
pub struct Reads {
    open: Mutex<HashMap<Option<SocketAddr>, usize>>,
    /// KiB that may still be copied.
    room: Arc<Semaphore>,
}

impl Default for Reads {
    fn default() -> Reads {
        Reads { open: Mutex::default(), room: Arc::new(Semaphore::new(MAX_READ_KIB)) }
    }
}

/// A permit for a long read, given back when dropped.
pub struct ReadPermit {
    reads: Arc<Reads>,
    peer: Option<SocketAddr>,
    _room: OwnedSemaphorePermit,
}

impl Reads {
    /// Returns a permit for a long read that copies so many bytes, or an error when too many are under way.
    pub fn permit(self: &Arc<Self>, peer: Option<SocketAddr>, bytes: usize) -> Result<ReadPermit, Status> {
        let Ok(room) = self.room.clone().try_acquire_many_owned((bytes >> 10) as u32) else {
            return Err(Status::resource_exhausted(format!(
                "long reads have copied {} MiB already",
                MAX_READ_KIB >> 10
            )));
        };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.values().sum::<usize>() >= MAX_READS {
            return Err(Status::resource_exhausted(format!("{MAX_READS} long reads are under way")));
        }
        let own = open.entry(peer).or_default();
        if *own >= MAX_READS_PER_CONNECTION {
            let reason = format!("{MAX_READS_PER_CONNECTION} long reads of this connection are under way");
            return Err(Status::resource_exhausted(reason));
        }
        *own += 1;
        Ok(ReadPermit { reads: self.clone(), peer, _room: room })
    }

    /// The messages for `answers`: at once when they fit into one, else one after the other.
    pub fn portions(
        self: &Arc<Self>,
        answers: Vec<Checked<Answer>>,
        peer: Option<SocketAddr>,
    ) -> Result<ReadStream, Status> {
        let mut chunks = Chunks::new(answers);
        let first = chunks.next();
        let second = chunks.next();
        if second.is_none() {
            return Ok(Box::pin(tokio_stream::iter(first)));
        }
        let permit = self.permit(peer, 0)?;
        Ok(deliver(permit, move || Ok(first.into_iter().chain(second).chain(chunks))))
    }
}

/// Long answers: made on a thread of their own, message by message, as the client takes them.
pub fn long(
    permit: ReadPermit,
    answers: impl FnOnce() -> Result<Vec<Checked<Answer>>, Status> + Send + 'static,
) -> ReadStream {
    deliver(permit, move || answers().map(Chunks::new))
}

fn deliver<C: Iterator<Item = Result<p4::ReadResponse, Status>>>(
    permit: ReadPermit,
    chunks: impl FnOnce() -> Result<C, Status> + Send + 'static,
) -> ReadStream {
    let (queue, outgoing) = mpsc::channel(1);
    let runtime = Handle::current();
    let send = move |chunk| {
        let sent = runtime.block_on(tokio::time::timeout(STALL, queue.send(chunk)));
        matches!(sent, Ok(Ok(())))
    };
    tokio::task::spawn_blocking(move || {
        // Kept until all of it is made.
        let _permit = permit;
        match chunks() {
            Ok(mut chunks) => while chunks.next().is_some_and(&send) {},
            Err(status) => drop(send(Err(status))),
        }
    });
    Box::pin(ReceiverStream::new(outgoing))
}

impl Drop for ReadPermit {
    fn drop(&mut self) {
        let mut open = self.reads.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = open.get_mut(&self.peer) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.peer);
            }
        }
    }
}

/// Entities that could be read, in bounded portions, and at the end the status of those that could not.
struct Chunks {
    answers: std::vec::IntoIter<Checked<Answer>>,
    current: Option<Answer>,
    outcomes: Vec<Checked<()>>,
    done: bool,
}

impl Chunks {
    fn new(answers: Vec<Checked<Answer>>) -> Self {
        Chunks { outcomes: Vec::with_capacity(answers.len()), answers: answers.into_iter(), current: None, done: false }
    }

    fn next_entity(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(entity) = self.current.as_mut().and_then(Iterator::next) {
                return Some(entity);
            }
            self.current = None;
            match self.answers.next()? {
                Ok(answer) => {
                    self.current = Some(answer);
                    self.outcomes.push(Ok(()));
                }
                Err(refusal) => self.outcomes.push(Err(refusal)),
            }
        }
    }
}

impl Iterator for Chunks {
    type Item = Result<p4::ReadResponse, Status>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let (mut entities, mut bytes) = (Vec::with_capacity(self.answers.len()), 0);
        while bytes < CHUNK_BYTES {
            let Some(entity) = self.next_entity() else { break };
            bytes += entity.len();
            entities.push(entity);
        }
        if !entities.is_empty() {
            return Some(Ok(p4::ReadResponse { entities }));
        }
        self.done = true;
        batch_status("Read", &self.outcomes).err().map(Err)
    }
}
