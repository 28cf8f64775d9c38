// SPDX-License-Identifier: Apache-2.0
//! Digest lists of one digest instance (P4Runtime 1.4, "DigestEntry"): samples are collected into lists of distinct
//! values, and each list can be acknowledged.
//!
//! The data plane does not repeat a value before it is acknowledged or its acknowledgement is overdue; this module
//! remembers which of the data plane's samples went into which list. Time is an argument: since the switch's start.
//! Loss is allowed by the specification, so memory is bounded by forgetting.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use apswitch_dataplane::control::{Digest, DigestId, Update, Value};
use async_channel::{Receiver, Sender, bounded};

use super::proto::p4::v1 as p4;

/// A list never grows beyond this, whatever the client allows, so that a message stays far below gRPC's 4 MiB.
const MAX_LIST_LEN: usize = 4096;
/// Nor beyond so many bytes of values.
const MAX_LIST_BYTES: usize = 2 << 20;
/// Samples that wait for an acknowledgement; beyond it the oldest list counts as lost.
const MAX_UNACKNOWLEDGED: usize = 1 << 16;

/// A list that is ready to be sent: its id and the values of its samples.
#[derive(Debug, PartialEq)]
pub struct DigestList {
    pub list_id: u64,
    pub samples: Vec<Vec<Value>>,
}

struct Sent {
    at: Duration,
    samples: Vec<(DigestId, u64)>,
}

pub struct DigestQueue {
    config: p4::digest_entry::Config,
    buffer: Vec<Digest>,
    buffered: HashSet<Vec<Value>>,
    buffered_bytes: usize,
    buffer_opened: Option<Duration>,
    sent: BTreeMap<u64, Sent>,
    unacknowledged: usize,
    last_list_id: u64,
}

impl DigestQueue {
    pub fn new(config: p4::digest_entry::Config) -> Self {
        DigestQueue {
            config,
            buffer: Vec::new(),
            buffered: HashSet::new(),
            buffered_bytes: 0,
            buffer_opened: None,
            sent: BTreeMap::new(),
            unacknowledged: 0,
            last_list_id: 0,
        }
    }

    /// An empty queue with the same parameters, whose lists go on to be numbered.
    pub fn restarted(self) -> DigestQueue {
        DigestQueue { last_list_id: self.last_list_id, ..DigestQueue::new(self.config) }
    }

    pub fn config(&self) -> p4::digest_entry::Config {
        self.config
    }

    /// Takes new parameters; what is buffered or unacknowledged stays so.
    pub fn configure(&mut self, config: p4::digest_entry::Config) {
        self.config = config;
    }

    fn max_timeout(&self) -> Duration {
        Duration::from_nanos(self.config.max_timeout_ns.max(0) as u64)
    }

    fn ack_timeout(&self) -> Duration {
        Duration::from_nanos(self.config.ack_timeout_ns.max(0) as u64)
    }

    /// Takes a sample of the data plane; answers the list that it completes, if any.
    pub fn offer(&mut self, sample: Digest, now: Duration) -> Option<DigestList> {
        if !self.buffered.insert(sample.values.clone()) {
            return None;
        }
        self.buffer_opened.get_or_insert(now);
        // A message frames each value with up to ten bytes.
        self.buffered_bytes += sample.values.iter().map(|value| value.bits() as usize / 8 + 10).sum::<usize>();
        self.buffer.push(sample);
        let longest = match self.config.max_list_size {
            1.. => (self.config.max_list_size as usize).min(MAX_LIST_LEN),
            _ => MAX_LIST_LEN,
        };
        let is_full = self.buffer.len() >= longest || self.buffered_bytes >= MAX_LIST_BYTES;
        (is_full || self.max_timeout().is_zero()).then(|| self.flush(now))
    }

    /// Forgets lists whose acknowledgement is overdue; answers the list whose time has come, if any.
    pub fn poll(&mut self, now: Duration) -> Option<DigestList> {
        while let Some((&list_id, sent)) = self.sent.first_key_value()
            && now >= sent.at + self.ack_timeout()
        {
            self.take_sent(list_id);
        }
        match self.buffer_opened {
            Some(opened) if now >= opened + self.max_timeout() => Some(self.flush(now)),
            _ => None,
        }
    }

    /// Returns the time at which `poll` has work next.
    pub fn deadline(&self) -> Option<Duration> {
        let list = self.buffer_opened.map(|opened| opened + self.max_timeout());
        let overdue = self.sent.first_key_value().map(|(_, sent)| sent.at + self.ack_timeout());
        list.into_iter().chain(overdue).min()
    }

    /// The client has this list (or will never get it): the data plane may send its values again. An unknown list is
    /// one that was forgotten already.
    pub fn acknowledge(&mut self, list_id: u64) -> Vec<Update> {
        let mut by_call: BTreeMap<DigestId, Vec<u64>> = BTreeMap::new();
        for (digest, sequence) in self.take_sent(list_id) {
            by_call.entry(digest).or_default().push(sequence);
        }
        by_call.into_iter().map(|(digest, sequences)| Update::AckDigest { digest, sequences }).collect()
    }

    /// A new primary has seen none of the lists.
    pub fn acknowledge_all(&mut self) -> Vec<Update> {
        let lists: Vec<u64> = self.sent.keys().copied().collect();
        lists.into_iter().flat_map(|list_id| self.acknowledge(list_id)).collect()
    }

    fn take_sent(&mut self, list_id: u64) -> Vec<(DigestId, u64)> {
        let samples = self.sent.remove(&list_id).map(|sent| sent.samples).unwrap_or_default();
        self.unacknowledged -= samples.len();
        samples
    }

    fn flush(&mut self, now: Duration) -> DigestList {
        self.buffer_opened = None;
        self.buffered.clear();
        self.buffered_bytes = 0;
        self.last_list_id += 1;
        let list_id = self.last_list_id;
        let buffer = std::mem::take(&mut self.buffer);
        if self.config.ack_timeout_ns > 0 {
            self.unacknowledged += buffer.len();
            let samples = buffer.iter().map(|sample| (sample.digest, sample.sequence)).collect();
            self.sent.insert(list_id, Sent { at: now, samples });
        }
        while self.unacknowledged > MAX_UNACKNOWLEDGED
            && let Some((&oldest, _)) = self.sent.first_key_value()
        {
            self.take_sent(oldest);
        }
        DigestList { list_id, samples: buffer.into_iter().map(|sample| sample.values).collect() }
    }
}

/// The digests that are enabled, by P4Info id.
pub struct Digests {
    queues: Mutex<BTreeMap<u32, DigestQueue>>,
    /// Holds one message when they have changed.
    changed: (Sender<()>, Receiver<()>),
}

impl Default for Digests {
    fn default() -> Digests {
        Digests { queues: Mutex::default(), changed: bounded(1) }
    }
}

impl Digests {
    pub fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, DigestQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when they have changed since the last call.
    pub async fn changed(&self) {
        let _ = self.changed.1.recv().await;
    }

    fn notify(&self) {
        // A full channel says it already.
        let _ = self.changed.0.try_send(());
    }

    pub fn config(&self, id: u32) -> Option<p4::digest_entry::Config> {
        self.lock().get(&id).map(DigestQueue::config)
    }

    /// Enables, changes or (`None`) disables a digest.
    pub fn configure(&self, id: u32, config: Option<p4::digest_entry::Config>) {
        let mut queues = self.lock();
        match (queues.get_mut(&id), config) {
            (Some(queue), Some(config)) => queue.configure(config),
            (None, Some(config)) => drop(queues.insert(id, DigestQueue::new(config))),
            (_, None) => drop(queues.remove(&id)),
        }
        drop(queues);
        self.notify();
    }

    /// Takes over those of a pipeline that is committed now.
    pub fn replace(&self, mut others: Digests) {
        *self.lock() = std::mem::take(others.queues.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.notify();
    }

    /// Keeps enabled digests enabled under a new id, and empties them.
    pub fn restart(&self, new_id: impl Fn(u32) -> Option<u32>) {
        let mut queues = self.lock();
        let restarted = std::mem::take(&mut *queues).into_iter();
        *queues = restarted.filter_map(|(id, queue)| Some((new_id(id)?, queue.restarted()))).collect();
    }

    pub fn acknowledge(&self, id: u32, list_id: u64) -> Vec<Update> {
        self.lock().get_mut(&id).map(|queue| queue.acknowledge(list_id)).unwrap_or_default()
    }

    pub fn acknowledge_all(&self) -> Vec<Update> {
        self.lock().values_mut().flat_map(DigestQueue::acknowledge_all).collect()
    }

    pub fn poll(&self, now: Duration) -> Vec<(u32, DigestList)> {
        self.lock().iter_mut().filter_map(|(&id, queue)| Some((id, queue.poll(now)?))).collect()
    }

    pub fn deadline(&self) -> Option<Duration> {
        self.lock().values().filter_map(DigestQueue::deadline).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn queue(max_timeout: Duration, max_list_size: i32, ack_timeout: Duration) -> (DigestQueue, Duration) {
        let (max_timeout_ns, ack_timeout_ns) = (max_timeout.as_nanos() as i64, ack_timeout.as_nanos() as i64);
        let config = p4::digest_entry::Config { max_timeout_ns, max_list_size, ack_timeout_ns };
        (DigestQueue::new(config), 7 * MS)
    }

    fn sample(value: u64) -> Digest {
        Digest { digest: DigestId(3), sequence: 100 + value, values: vec![value.into()], timestamp_us: 0 }
    }

    fn list(list_id: u64, values: &[u64]) -> Option<DigestList> {
        Some(DigestList { list_id, samples: values.iter().map(|&value| vec![value.into()]).collect() })
    }

    fn sequences(updates: Vec<Update>) -> Vec<u64> {
        let sequences = |update| match update {
            Update::AckDigest { digest: DigestId(3), sequences } => sequences,
            other => panic!("{other:?}"),
        };
        updates.into_iter().flat_map(sequences).collect()
    }

    #[test]
    fn a_list_is_sent_when_full_or_due() {
        let (mut q, t) = queue(10 * MS, 2, 1000 * MS);
        assert_eq!(q.offer(sample(1), t), None);
        assert_eq!(q.offer(sample(1), t), None, "a duplicate does not fill the list");
        assert_eq!(q.offer(sample(2), t + MS), list(1, &[1, 2]));
        assert_eq!(q.offer(sample(3), t + 2 * MS), None);
        assert_eq!(q.deadline(), Some(t + 12 * MS));
        assert_eq!(q.poll(t + 11 * MS), None);
        assert_eq!(q.poll(t + 12 * MS), list(2, &[3]));
        assert_eq!(q.poll(t + 100 * MS), None);
    }

    #[test]
    fn an_acknowledgement_names_the_samples_of_its_list() {
        let (mut q, t) = queue(Duration::ZERO, 1, 100 * MS);
        assert_eq!(q.offer(sample(7), t), list(1, &[7]));
        assert_eq!(q.offer(sample(8), t + MS), list(2, &[8]));
        assert_eq!(q.offer(sample(9), t + 2 * MS), list(3, &[9]));
        assert_eq!(sequences(q.acknowledge(2)), [108]);
        assert!(q.acknowledge(2).is_empty() && q.acknowledge(99).is_empty());
        assert_eq!(q.deadline(), Some(t + 100 * MS));
        assert_eq!(q.poll(t + 100 * MS), None);
        assert!(q.acknowledge(1).is_empty(), "overdue lists are forgotten");
        assert_eq!(sequences(q.acknowledge_all()), [109]);
        assert_eq!(q.deadline(), None);
    }

    #[test]
    fn without_ack_timeout_nothing_is_remembered() {
        let (mut q, t) = queue(Duration::ZERO, 0, Duration::ZERO);
        assert_eq!(q.offer(sample(7), t), list(1, &[7]));
        assert_eq!(q.offer(sample(7), t), list(2, &[7]));
        assert_eq!(q.deadline(), None);
    }

    #[test]
    fn a_list_of_wide_values_fits_a_message() {
        let (mut q, t) = queue(3_600_000 * MS, 0, Duration::ZERO);
        let wide = |number: u64| {
            let value = Value::from_bytes(&[&[0xff; 10_000][..], &number.to_be_bytes()].concat());
            Digest { digest: DigestId(3), sequence: number, values: vec![value], timestamp_us: 0 }
        };
        let list = (0..).find_map(|number| q.offer(wide(number), t)).unwrap();
        assert!((200..=210).contains(&list.samples.len()), "{} values", list.samples.len());
    }

    #[test]
    fn memory_is_bounded_without_acknowledgements() {
        let (mut q, t) = queue(3_600_000 * MS, 0, 3_600_000 * MS);
        for value in 0..300_000 {
            q.offer(sample(value), t);
        }
        assert!(q.sent.values().map(|sent| sent.samples.len()).sum::<usize>() <= MAX_UNACKNOWLEDGED);
        assert!(q.buffer.len() <= MAX_LIST_LEN && q.buffered.len() == q.buffer.len());
        assert!(q.acknowledge(1).is_empty(), "the oldest list was forgotten");
    }
}
