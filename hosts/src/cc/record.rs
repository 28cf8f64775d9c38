// SPDX-License-Identifier: Apache-2.0
//! Record a control: each callback's arguments, and the state that it leaves.

use std::cell::RefCell;
use std::io::{self, BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, RingBufferBuilder};
use serde::Serialize;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};

use super::controls::{Control, Settings};
use super::load;
use super::loaded::CALLBACKS;
use hosts_base::{About, Error};

/// Event as in `struct event` of `bpf/cc_record.h`.
#[repr(C)]
#[derive(Clone, Copy, Serialize)]
struct Event {
    socket: u64,
    mstamp: u64,
    jiffies: u64,
    bytes_sent: u64,
    #[serde(serialize_with = "callback_name")]
    callback: u32,
    leaves: u32,
    arguments: [u32; 2],
    result: u32,
    cwnd: u32,
    cwnd_cnt: u32,
    cwnd_clamp: u32,
    ssthresh: u32,
    prior_cwnd: u32,
    snd_una: u32,
    snd_nxt: u32,
    srtt_us: u32,
    mss: u32,
    lsndtime: u32,
    lost: u32,
    delivered: u32,
    delivered_ce: u32,
    max_packets_out: u32,
    cwnd_limited: u32,
    ca_state: u32,
    local_port: u32,
    remote_port: u32,
}

fn callback_name<S: serde::Serializer>(number: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(CALLBACKS.get(*number as usize).unwrap_or(&"?"))
}

/// Load `control` and write the events of all its sockets to standard output, JSON lines, until SIGINT or SIGTERM, for
/// `limit`, or until the reader closes; then unload it. Errors: events were lost because the reader was too slow.
pub fn record(control: &Control, settings: &Settings, limit: Option<Duration>) -> Result<(), Error> {
    let (link, object) = load::attach(control, settings, true)?;
    let out = RefCell::new((BufWriter::with_capacity(1 << 16, io::stdout().lock()), Ok(())));
    let events = object.maps().find(|m| m.name() == "events").expect("a control has a ring");
    let mut builder = RingBufferBuilder::new();
    builder
        .add(&events, |bytes| {
            let (writer, result) = &mut *out.borrow_mut();
            if result.is_ok() {
                *result = write_event(writer, bytes);
            }
            0
        })
        .about("open the ring")?;
    let ring = builder.build().about("open the ring")?;
    let poll = || {
        let _ = ring.consume();
        let (writer, result) = &mut *out.borrow_mut();
        let flushed = writer.flush();
        std::mem::replace(result, Ok(())).and(flushed)
    };
    eprintln!("{} is loaded as {} and recorded", control.name, control.kernel_name);
    // SAFETY: the ring, and with it its descriptor, lives until the end of this function.
    let ready = unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) };
    let outcome = wait(ready, limit, poll);
    outcome.and_then(|()| poll()).or_else(reader_gone).about("write events")?;
    drop(link);
    load::wait_until_forgotten(control);
    match missed(&object) {
        0 => Ok(()),
        n => Err(Error::new(format!("{n} events came faster than they could be written: record fewer connections"))),
    }
}

fn write_event(writer: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() < size_of::<Event>() {
        return Ok(());
    }
    // SAFETY: the ring gives at least as many bytes, and every bit pattern is an Event.
    let event = unsafe { bytes.as_ptr().cast::<Event>().read_unaligned() };
    serde_json::to_writer(&mut *writer, &event)?;
    writer.write_all(b"\n")
}

/// Return success if the reader of a pipe has closed it.
fn reader_gone(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
}

fn missed(object: &libbpf_rs::Object) -> u32 {
    let map = object.maps().find(|m| m.name() == ".data.record");
    let value = map.and_then(|m| m.lookup(&0u32.to_ne_bytes(), libbpf_rs::MapFlags::ANY).ok().flatten());
    value.and_then(|v| v.get(..4)?.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

/// Call `poll` whenever there are events, until the end.
fn wait(ready: BorrowedFd<'_>, limit: Option<Duration>, poll: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        // SAFETY: `ready` names the same open descriptor for as long as the AsyncFd lives.
        let ready = unsafe { AsyncFd::register(ready) }?;
        let end = limit.map(|l| Instant::now() + l);
        let over = async {
            match end {
                Some(end) => tokio::time::sleep_until(end.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(over);
        loop {
            tokio::select! {
                _ = interrupted.recv() => return Ok(()),
                _ = terminated.recv() => return Ok(()),
                () = &mut over => return Ok(()),
                guard = ready.readable() => {
                    guard?.clear_ready();
                    poll()?;
                }
            }
        }
    })
}
