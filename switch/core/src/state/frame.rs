// SPDX-License-Identifier: Apache-2.0
//! Packets in flight and the pool that they come from, so that nothing is allocated per packet.

/// Bytes in front of a received frame: what the deparser may add.
const HEADROOM: usize = 256;
/// Bytes behind the longest frame: native code reads eight bytes at a time, and one more for what is not aligned.
const TAILROOM: usize = 16;

/// A frame in its buffer.
pub struct Frame {
    buffer: Box<[u8]>,
    /// The frame is `buffer[start..end]`; native code relies on it.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Frame {
    fn new(capacity: usize) -> Frame {
        let buffer = vec![0; HEADROOM + capacity + TAILROOM].into_boxed_slice();
        Frame { buffer, start: HEADROOM, end: HEADROOM }
    }

    /// Bytes of the longest frame that it can receive.
    #[inline]
    fn capacity(&self) -> usize {
        self.buffer.len() - HEADROOM - TAILROOM
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// All memory, also in front of the frame and behind it.
    pub fn buffer(&self) -> &[u8] {
        &self.buffer
    }

    pub fn buffer_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// Returns the bytes from this place of the buffer to the end.
    pub fn from(&self, at: usize) -> &[u8] {
        &self.buffer[at..self.end]
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns the buffer for a received frame; followed by [`Frame::received`].
    #[inline]
    pub fn space(&mut self) -> &mut [u8] {
        let end = self.buffer.len() - TAILROOM;
        &mut self.buffer[HEADROOM..end]
    }

    /// The frame is the first bytes of [`Frame::space`]. Panics if there are not so many.
    #[inline]
    pub fn received(&mut self, len: usize) {
        assert!(HEADROOM + len + TAILROOM <= self.buffer.len(), "a frame is longer than its buffer");
        self.start = HEADROOM;
        self.end = HEADROOM + len;
    }

    /// Puts a VLAN tag back behind the addresses of a received frame.
    pub fn insert_tag(&mut self, tag: [u8; 4]) {
        const ADDRESSES: usize = 12;
        let start = self.start - tag.len();
        self.buffer.copy_within(self.start..self.start + ADDRESSES, start);
        self.buffer[start + ADDRESSES..self.start + ADDRESSES].copy_from_slice(&tag);
        self.start = start;
    }

    /// Replaces the frame; false: it is longer than a buffer.
    #[inline]
    pub fn set(&mut self, bytes: &[u8]) -> bool {
        let space = self.space();
        if bytes.len() > space.len() {
            return false;
        }
        space[..bytes.len()].copy_from_slice(bytes);
        self.received(bytes.len());
        true
    }

    /// Makes this a copy, at the same place of the buffer.
    pub fn copy_from(&mut self, other: &Frame) {
        self.start = other.start;
        self.end = other.end;
        self.buffer[other.start..other.end].copy_from_slice(other.bytes());
    }

    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        self.buffer[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Makes room for `len` bytes before `payload`, which stays where it is unless it has to move back.
    /// Returns the new place of the payload; `None`: the frame no longer fits the buffer.
    pub(crate) fn prepend(&mut self, payload: usize, len: usize) -> Option<usize> {
        if len <= payload {
            self.start = payload - len;
            return Some(payload);
        }
        let shift = len - payload;
        if self.end + shift > self.buffer.len() - TAILROOM {
            return None;
        }
        self.buffer.copy_within(payload..self.end, payload + shift);
        self.start = 0;
        self.end += shift;
        Some(payload + shift)
    }
}

/// State that the machine keeps of a packet in addition to its registers.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketState {
    /// Place in the frame's buffer up to which it was parsed.
    pub(crate) payload: usize,
    /// Bytes, kept up to date as headers come and go.
    pub length: u32,
    /// Bytes as received: what counters and meters count.
    pub ingress_length: u32,
    /// Bytes that leave at most.
    pub truncate: u32,
}

impl PacketState {
    /// State of a frame as it was received.
    #[inline]
    pub(crate) fn received(frame: &Frame) -> PacketState {
        let length = frame.len() as u32;
        PacketState { payload: 0, length, ingress_length: length, truncate: u32::MAX }
    }
}

/// A packet with its frame and, while it waits, its PHV.
pub struct Packet {
    pub frame: Frame,
    /// Empty unless parked.
    pub(crate) phv: Vec<u64>,
    pub state: PacketState,
}

/// Packets that are free. Grows on demand up to `limit`.
pub struct Pool {
    free: Vec<Box<Packet>>,
    capacity: usize,
    made: usize,
    limit: usize,
}

impl Pool {
    /// `capacity`: bytes of the longest frame. `limit`: packets in flight at most.
    pub fn new(capacity: usize, limit: usize) -> Pool {
        Pool { free: Vec::new(), capacity, made: 0, limit }
    }

    /// Packets in flight at most, from now on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// `None`: as many packets are in flight as are allowed.
    #[inline]
    pub fn take(&mut self) -> Option<Box<Packet>> {
        if let Some(packet) = self.free.pop() {
            return Some(packet);
        }
        if self.made >= self.limit {
            return None;
        }
        self.made += 1;
        Some(Box::new(Packet { frame: Frame::new(self.capacity), phv: Vec::new(), state: PacketState::default() }))
    }

    /// Takes a packet back, unless it is from before [`Pool::grow`].
    #[inline]
    pub fn give(&mut self, packet: Box<Packet>) {
        if packet.frame.capacity() < self.capacity {
            self.made -= 1;
            return;
        }
        self.free.push(packet);
    }

    /// Gives packets room for longer frames, from now on.
    pub fn grow(&mut self, capacity: usize) {
        if capacity > self.capacity {
            self.capacity = capacity;
            self.made -= self.free.len();
            self.free.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_grown_takes_no_short_packet_back_and_keeps_its_limit() {
        let mut pool = Pool::new(100, 3);
        let (first, second) = (pool.take().unwrap(), pool.take().unwrap());
        pool.give(first);
        pool.grow(200);
        pool.give(second);
        let mut taken: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken.len(), 3);
        assert!(taken.iter_mut().all(|packet| packet.frame.set(&[1; 200])));
    }
}
