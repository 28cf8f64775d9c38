// SPDX-License-Identifier: Apache-2.0
//! Tasks of a subflow: one writes the connection's frames to its socket, one reads frames from it.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use socket2::SockRef;
use tokio::time::sleep_until;

use super::Interface;
use super::connection_state::{ConnectionState, Totals, Work};
use super::coupling::{Group, uncoupled};
use super::link::Link;
use super::seal::{Records, unseal};
use super::segment::{self, HEADER, MAX_PAYLOAD};
use super::sender::Segment;
use super::subflow::Subflow;
use super::uplink::Direction;

impl ConnectionState {
    /// Add a subflow whose hello is done, and start its tasks. It replaces an earlier one of the same interface, which
    /// the other end may have lost unnoticed by this one.
    pub fn add(self: &Arc<Self>, number: u8, interface: Interface, link: Link) {
        let mut state = self.state();
        if state.ended {
            return;
        }
        let now = Instant::now();
        let link = Arc::new(link);
        let id = state.next_subflow;
        state.next_subflow += 1;
        let total = state.totals.entry(number).or_insert_with(|| Totals::new(&interface.name));
        total.subflows += 1;
        // An error leaves the path with another codepoint, nothing worse.
        let _ = state.dscp.set(&link.stream, link.peer.ip());
        let part = Group::free(|part| state.subflows.values().any(|other| other.part == part));
        if let Some(group) = &self.coupled {
            group.join(&link.stream, part).unwrap_or_else(uncoupled);
        }
        let mut subflow = Subflow::new(number, part, interface, link.clone(), self.options.estimator, now);
        let (shared, writer) = (self.clone(), link.clone());
        let write = tokio::spawn(async move {
            let result = write(shared.clone(), id, writer).await;
            if result.is_err() {
                shared.remove(id);
            }
        });
        let shared = self.clone();
        let read = tokio::spawn(async move {
            let _ = read(shared.clone(), id, link).await;
            shared.remove(id);
        });
        subflow.tasks = vec![write.abort_handle(), read.abort_handle()];
        let old: Vec<u32> = state.subflows.iter().filter(|(_, s)| s.number == number).map(|(&id, _)| id).collect();
        state.subflows.insert(id, subflow);
        state.last_alive = now;
        state.weigh();
        drop(state);
        old.into_iter().for_each(|id| self.remove(id));
        self.changed.notify_one();
    }
}

/// Return the bytes to read at once: one of the longest segments, up to four with a large window.
fn room(window: usize) -> usize {
    (MAX_PAYLOAD + HEADER) * (window >> 20).clamp(1, 4)
}

/// Write the connection's frames to this subflow until all is done. Errors: the subflow is dead.
pub async fn write(shared: Arc<ConnectionState>, id: u32, link: Arc<Link>) -> io::Result<()> {
    let mut sealed = Records::default();
    loop {
        link.writable().await?;
        match shared.work(id) {
            Work::Control(octets) => match &link.seal {
                Some(keys) => {
                    sealed.clear();
                    sealed.push(keys, &octets, &[]);
                    link.write_all(&mut [IoSlice::new(sealed.octets())]).await?;
                }
                None => link.write_all(&mut [IoSlice::new(&octets)]).await?,
            },
            Work::Segments(segments) => match &link.seal {
                Some(keys) => {
                    sealed.clear();
                    for segment in &segments {
                        let head = segment::segment_header(segment.number, segment.payload.len());
                        sealed.push(keys, &head, &segment.payload);
                    }
                    link.write_all(&mut [IoSlice::new(sealed.octets())]).await?;
                }
                None => write_segments(&link, &segments).await?,
            },
            Work::Idle(None) => link.ready.notified().await,
            Work::Idle(Some(until)) => {
                tokio::select! {
                    () = link.ready.notified() => {}
                    () = sleep_until(until.into()) => {}
                }
            }
            Work::Finish => {
                SockRef::from(&link.stream).shutdown(std::net::Shutdown::Write)?;
                return Ok(());
            }
        }
    }
}

/// Write segments without copying them.
async fn write_segments(link: &Link, segments: &[Segment]) -> io::Result<()> {
    let heads: Vec<_> = segments.iter().map(|s| segment::segment_header(s.number, s.payload.len())).collect();
    let mut pieces: Vec<_> = heads
        .iter()
        .zip(segments)
        .flat_map(|(head, segment)| [IoSlice::new(head), IoSlice::new(&segment.payload)])
        .collect();
    link.write_all(&mut pieces).await
}

/// Read frames until the peer closes the subflow. Errors: the subflow is dead, or the connection is over.
pub async fn read(shared: Arc<ConnectionState>, id: u32, link: Arc<Link>) -> io::Result<()> {
    let (mut buffer, mut count) = (BytesMut::new(), 0);
    let room = room(shared.options.window);
    loop {
        match &link.seal {
            Some(keys) => {
                while let Some(mut frame) = unseal(keys, &mut count, &mut buffer)? {
                    shared.received(id, &mut frame)?;
                    if !frame.is_empty() {
                        return Err(io::Error::new(io::ErrorKind::InvalidData, "a record is one frame"));
                    }
                }
            }
            None => shared.received(id, &mut buffer)?,
        }
        link.stream.readable().await?;
        // The buffer ends with the frame that has begun; the next frame begins a new one.
        if buffer.len() == buffer.capacity() {
            buffer.reserve(room);
        }
        match link.stream.try_read_buf(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                let now = Instant::now();
                link.uplink.pass(Direction::Down, length, now);
                if let Some(at) = link.uplink.wait(Direction::Down, now) {
                    sleep_until(at.into()).await;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
}
