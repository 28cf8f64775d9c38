// SPDX-License-Identifier: Apache-2.0
//! The messages of a `Read`: bounded portions of a bounded number of snapshots.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{Checked, Code, Status, batch_status};
use super::proto::p4::v1 as p4;
use super::read::{Answer, Asked};
use super::role::Access;

/// Messages of an answer, the last of which may say what could not be read.
pub type Messages = Box<dyn Iterator<Item = Result<p4::ReadResponse, Status>> + Send>;

/// Answer to a `Read`.
pub enum Read {
    Short(Option<Result<p4::ReadResponse, Status>>),
    /// Keep the permit until the messages are made.
    Many(ReadPermit, Messages),
    /// Takes long to look up: see [`Device::look_up`](super::device::Device::look_up).
    Long(ReadPermit, LongRead),
}

/// Requests of a `Read` that are not looked up yet.
pub struct LongRead {
    pub(crate) asked: Vec<Asked>,
    pub(crate) access: Access,
}

/// Answers of several portions that may be under way at once, of all connections and of one: each holds a snapshot.
const MAX_READS: usize = 16;
const MAX_READS_PER_CONNECTION: usize = 4;
/// A `ReadResponse` is sent when its entities have this many bytes; clients take 4 MiB by default.
const CHUNK_BYTES: usize = 256 << 10;

/// KiB that all reads under way may have copied.
const MAX_READ_KIB: usize = 256 << 10;

/// The reads under way.
#[derive(Default)]
pub(crate) struct Reads(Mutex<UnderWay>);

#[derive(Default)]
struct UnderWay {
    by_connection: HashMap<Option<SocketAddr>, usize>,
    copied_kib: usize,
}

/// A permit for a long read, given back when dropped.
pub struct ReadPermit {
    reads: Arc<Reads>,
    peer: Option<SocketAddr>,
    kib: usize,
}

impl Reads {
    /// Returns a permit for a long read that copies so many bytes, or an error when too many are under way.
    pub fn permit(self: &Arc<Self>, peer: Option<SocketAddr>, bytes: usize) -> Result<ReadPermit, Status> {
        let kib = bytes >> 10;
        let mut under_way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let UnderWay { by_connection, copied_kib } = &mut *under_way;
        if *copied_kib + kib > MAX_READ_KIB {
            let reason = format!("long reads have copied {} MiB already", MAX_READ_KIB >> 10);
            return Err(Status::new(Code::ResourceExhausted, reason));
        }
        if by_connection.values().sum::<usize>() >= MAX_READS {
            return Err(Status::new(Code::ResourceExhausted, format!("{MAX_READS} long reads are under way")));
        }
        let own = by_connection.entry(peer).or_default();
        if *own >= MAX_READS_PER_CONNECTION {
            let reason = format!("{MAX_READS_PER_CONNECTION} long reads of this connection are under way");
            return Err(Status::new(Code::ResourceExhausted, reason));
        }
        *own += 1;
        *copied_kib += kib;
        Ok(ReadPermit { reads: self.clone(), peer, kib })
    }

    /// The messages for `answers`: one at most, or many, of which each is made when it is taken.
    pub fn messages(self: &Arc<Self>, answers: Vec<Checked<Answer>>, peer: Option<SocketAddr>) -> Result<Read, Status> {
        let mut chunks = Chunks::new(answers);
        let first = chunks.next();
        let second = chunks.next();
        if second.is_none() {
            return Ok(Read::Short(first));
        }
        let permit = self.permit(peer, 0)?;
        Ok(Read::Many(permit, Box::new(first.into_iter().chain(second).chain(chunks))))
    }
}

impl Drop for ReadPermit {
    fn drop(&mut self) {
        let mut under_way = self.reads.0.lock().unwrap_or_else(PoisonError::into_inner);
        let UnderWay { by_connection, copied_kib } = &mut *under_way;
        *copied_kib -= self.kib;
        if let Some(own) = by_connection.get_mut(&self.peer) {
            *own -= 1;
            if *own == 0 {
                by_connection.remove(&self.peer);
            }
        }
    }
}

/// Entities that could be read, in bounded portions, and at the end the status of those that could not.
pub(crate) struct Chunks {
    answers: std::vec::IntoIter<Checked<Answer>>,
    current: Option<Answer>,
    outcomes: Vec<Checked<()>>,
    done: bool,
}

impl Chunks {
    pub(crate) fn new(answers: Vec<Checked<Answer>>) -> Self {
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
