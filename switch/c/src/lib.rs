// SPDX-License-Identifier: Apache-2.0
//! The C interface to [`apswitch_p4runtime::simulation`]. `apswitch.h` is made from this file: `cargo test` says how when it is
//! not the same.
//!
//! No call aborts or unwinds into the caller: what goes wrong is a code, and a line that names the thing and the mend.

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]
// The names are C's.
#![allow(non_camel_case_types)]

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use apswitch_dataplane::device::DeviceOptions;
use apswitch_p4runtime::simulation::{Method, Refused, Sent, Simulation};

/// A switch in virtual time. One thread at a time may use it.
pub struct ApsSwitch {
    simulation: Simulation,
    /// Bytes that the last call left for the caller; valid until the next call.
    bytes: Vec<u8>,
    /// The line of the last error, ended with 0.
    error: Vec<u8>,
    sent: Option<Sent>,
}

/// Result of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApsResult {
    APS_OK = 0,
    /// Nothing to take.
    APS_NOTHING = 1,
    /// The caller's mistake: aps_error() names it and the mend.
    APS_ERROR = 2,
    /// P4Runtime refused: the bytes are a google.rpc.Status, and aps_error() has its text.
    APS_STATUS = 3,
}

use ApsResult::{APS_ERROR, APS_NOTHING, APS_OK, APS_STATUS};

/// RPCs that are one request and one answer, for aps_call().
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApsMethod {
    APS_WRITE = 0,
    /// All answers are one ReadResponse.
    APS_READ = 1,
    APS_SET_FORWARDING_PIPELINE_CONFIG = 2,
    APS_GET_FORWARDING_PIPELINE_CONFIG = 3,
    APS_CAPABILITIES = 4,
}

/// Bytes that belong to the switch, until its next call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ApsBytes {
    pub data: *const u8,
    pub length: usize,
}

/// A frame that a port sent; its bytes are valid until the switch's next call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ApsFrame {
    pub bytes: ApsBytes,
    /// ns: when it had left the port's link.
    pub at: u64,
    pub port: u16,
}

fn line(text: &str) -> Vec<u8> {
    text.bytes().filter(|&byte| byte != 0).chain([0]).collect()
}

/// # Safety
/// `data` points to `length` bytes that stay as they are, or `length` is 0.
unsafe fn slice<'a>(data: *const u8, length: usize) -> &'a [u8] {
    match length {
        0 => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(data, length) },
    }
}

impl ApsSwitch {
    fn fail(&mut self, code: ApsResult, text: &str) -> ApsResult {
        self.error = line(text);
        code
    }

    fn done(&mut self, result: Result<(), String>) -> ApsResult {
        match result {
            Ok(()) => APS_OK,
            Err(text) => self.fail(APS_ERROR, &text),
        }
    }
}

/// Runs `call` on the switch. A panic is an error of this library; the switch is not to be used any more but for
/// aps_error() and aps_free().
///
/// # Safety
/// `aps` is null or of [`aps_new`], and nobody else uses it.
unsafe fn on(aps: *mut ApsSwitch, call: impl FnOnce(&mut ApsSwitch) -> ApsResult) -> ApsResult {
    // SAFETY: the caller's promise.
    let Some(aps) = (unsafe { aps.as_mut() }) else { return APS_ERROR };
    match catch_unwind(AssertUnwindSafe(|| call(aps))) {
        Ok(result) => result,
        Err(_) => aps.fail(APS_ERROR, "a defect of the switch stopped this call: free the switch, and report it"),
    }
}

/// A switch without a program, at time 0. `words`: `count` options of the program `apswitch` that say what it is made
/// of:
/// -i, --link, --queue, --cpu-port, --priority-queues, --device-id, --seed (1 if missing). Null: `error`, of
/// `error_size` bytes, has the line that says why.
///
/// # Safety
/// `words` points to as many texts that end with 0, `error` to so many bytes or `error_size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aps_new(
    words: *const *const c_char,
    count: usize,
    error: *mut c_char,
    error_size: usize,
) -> *mut ApsSwitch {
    let made = catch_unwind(|| {
        let word = |index| {
            // SAFETY: the caller's promise.
            let text = unsafe { CStr::from_ptr(*words.add(index)) };
            text.to_str().map(str::to_owned).map_err(|_| format!("option {index} is not UTF-8: give text"))
        };
        let words = (0..count).map(word).collect::<Result<Vec<String>, String>>()?;
        Simulation::new(&DeviceOptions::from_words(&words)?)
    });
    match made.unwrap_or_else(|_| Err("a defect of the switch: report it".into())) {
        Ok(simulation) => {
            Box::into_raw(Box::new(ApsSwitch { simulation, bytes: Vec::new(), error: vec![0], sent: None }))
        }
        Err(text) => {
            let text = line(&text);
            if let Some(last) = error_size.checked_sub(1) {
                let kept = last.min(text.len() - 1);
                // SAFETY: no more than `error_size` bytes.
                unsafe {
                    std::ptr::copy_nonoverlapping(text.as_ptr(), error.cast(), kept);
                    *error.add(kept) = 0;
                }
            }
            std::ptr::null_mut()
        }
    }
}

/// Ends the switch, and frees it; null is none.
///
/// # Safety
/// `aps` is null or of [`aps_new`], and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aps_free(aps: *mut ApsSwitch) {
    if !aps.is_null() {
        // SAFETY: the caller's promise. What panics while it ends is not to reach the caller.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(aps) })));
    }
}

/// The line of the last error of this switch; valid until its next call.
///
/// # Safety
/// `aps` is of [`aps_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aps_error(aps: *const ApsSwitch) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { aps.as_ref() }.map_or(c"there is no switch".as_ptr(), |aps| aps.error.as_ptr().cast())
}

/// The switch's time in ns since its start.
///
/// # Safety
/// `aps` is of [`aps_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aps_now(aps: *const ApsSwitch) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { aps.as_ref() }.map_or(0, |aps| aps.simulation.now())
}

/// Returns when the switch has something to do next, in ns: to be advanced to by then. It is never further away than
/// 100 ms, as entries are looked at for their age.
///
/// # Safety
/// `aps` is of [`aps_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aps_deadline(aps: *const ApsSwitch) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { aps.as_ref() }.map_or(u64::MAX, |aps| aps.simulation.deadline())
}

/// Does all that is due until `to` ns, each at its time. APS_ERROR: time would go back.
///
/// # Safety
/// `aps` is of [`aps_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aps_advance(aps: *mut ApsSwitch, to: u64) -> ApsResult {
    // SAFETY: the caller's promise.
    unsafe {
        on(aps, |aps| {
            let result = aps.simulation.advance(to);
            aps.done(result)
        })
    }
}

/// A frame arrives at a port, now. APS_ERROR: there is no such port, or the frame is too long.
///
/// # Safety
/// `aps` is of [`aps_new`], and `frame` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aps_receive(aps: *mut ApsSwitch, port: u16, frame: *const u8, length: usize) -> ApsResult {
    // SAFETY: the caller's promise.
    unsafe {
        on(aps, |aps| {
            let result = aps.simulation.receive(port, slice(frame, length));
            aps.done(result)
        })
    }
}

/// Lets the device behind a port, with a short queue of its own, take so many frames more from now on. What it does not
/// take waits in the port's queues. A port of which this was never said sends what it can. APS_ERROR: there is no such
/// port, or it has no --link and so no queue.
///
/// # Safety
/// `aps` is of [`aps_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aps_allow(aps: *mut ApsSwitch, port: u16, frames: u32) -> ApsResult {
    // SAFETY: the caller's promise.
    unsafe {
        on(aps, |aps| {
            let result = aps.simulation.allow(port, frames);
            aps.done(result)
        })
    }
}

/// The next frame that a port sent, in the order of time; APS_NOTHING: there is none.
///
/// # Safety
/// `aps` is of [`aps_new`], and `frame` points to a frame to be set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aps_sent(aps: *mut ApsSwitch, frame: *mut ApsFrame) -> ApsResult {
    // SAFETY: the caller's promise.
    unsafe {
        on(aps, |aps| {
            aps.sent = aps.simulation.sent();
            let Some(sent) = &aps.sent else { return APS_NOTHING };
            let bytes = ApsBytes { data: sent.frame.as_ptr(), length: sent.frame.len() };
            frame.write(ApsFrame { bytes, at: sent.at, port: sent.port });
            APS_OK
        })
    }
}

/// Puts the answer, or the status, where the caller finds it.
///
/// # Safety
/// `to` points to bytes to be set.
unsafe fn answer(aps: &mut ApsSwitch, result: Result<Option<Vec<u8>>, Refused>, to: *mut ApsBytes) -> ApsResult {
    let (bytes, code) = match result {
        Ok(Some(bytes)) => (bytes, APS_OK),
        Ok(None) => (Vec::new(), APS_NOTHING),
        Err(refused) => (refused.status, aps.fail(APS_STATUS, &refused.message)),
    };
    aps.bytes = bytes;
    // SAFETY: the caller's promise.
    unsafe { to.write(ApsBytes { data: aps.bytes.as_ptr(), length: aps.bytes.len() }) };
    code
}

/// An RPC of P4Runtime, one of aps_method: `request` and `to` are messages as protobuf writes them.
///
/// # Safety
/// `aps` is of [`aps_new`], `request` points to `length` bytes, and `to` to bytes to be set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aps_call(
    aps: *mut ApsSwitch,
    method: u32,
    request: *const u8,
    length: usize,
    to: *mut ApsBytes,
) -> ApsResult {
    use ApsMethod::*;
    let methods = [
        (APS_WRITE, Method::Write),
        (APS_READ, Method::Read),
        (APS_SET_FORWARDING_PIPELINE_CONFIG, Method::SetForwardingPipelineConfig),
        (APS_GET_FORWARDING_PIPELINE_CONFIG, Method::GetForwardingPipelineConfig),
        (APS_CAPABILITIES, Method::Capabilities),
    ];
    let found = methods.into_iter().find(|(number, _)| *number as u32 == method);
    // SAFETY: the caller's promise.
    unsafe {
        on(aps, |aps| {
            let Some((_, method)) = found else {
                return aps.fail(APS_ERROR, &format!("there is no method {method}: give one of aps_method"));
            };
            let result = aps.simulation.call(method, slice(request, length)).map(Some);
            answer(aps, result, to)
        })
    }
}

/// Opens a StreamChannel, which `stream` names from now on.
///
/// # Safety
/// `aps` is of [`aps_new`], and `stream` points to a number to be set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aps_stream_open(aps: *mut ApsSwitch, stream: *mut u64) -> ApsResult {
    // SAFETY: the caller's promise.
    unsafe {
        on(aps, |aps| match aps.simulation.open_stream() {
            Ok(id) => {
                stream.write(id);
                APS_OK
            }
            Err(refused) => aps.fail(APS_STATUS, &refused.message),
        })
    }
}

/// Sends a StreamMessageRequest. APS_STATUS: the stream has ended, and `to` is why.
///
/// # Safety
/// As of [`aps_call`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aps_stream_send(
    aps: *mut ApsSwitch,
    stream: u64,
    message: *const u8,
    length: usize,
    to: *mut ApsBytes,
) -> ApsResult {
    // SAFETY: the caller's promise.
    unsafe {
        on(aps, |aps| {
            let result = aps.simulation.send_to(stream, slice(message, length)).map(|()| Some(Vec::new()));
            answer(aps, result, to)
        })
    }
}

/// Takes the next StreamMessageResponse; APS_NOTHING: there is none. APS_STATUS: the stream has ended, and `to` is why.
///
/// # Safety
/// `aps` is of [`aps_new`], and `to` points to bytes to be set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aps_stream_take(aps: *mut ApsSwitch, stream: u64, to: *mut ApsBytes) -> ApsResult {
    // SAFETY: the caller's promise.
    unsafe {
        on(aps, |aps| {
            let result = aps.simulation.take_from(stream);
            answer(aps, result, to)
        })
    }
}

/// Ends a stream, as if its client went away.
///
/// # Safety
/// `aps` is of [`aps_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aps_stream_close(aps: *mut ApsSwitch, stream: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        on(aps, |aps| {
            aps.simulation.close_stream(stream);
            APS_OK
        });
    }
}

#[cfg(test)]
mod tests {
    /// `APS_HEADER=renew cargo test -p apswitch-c` writes it.
    #[test]
    fn the_header_says_what_the_library_has() {
        let root = env!("CARGO_MANIFEST_DIR");
        let path = format!("{root}/apswitch.h");
        let mut header = Vec::new();
        let config = cbindgen::Config::from_file(format!("{root}/cbindgen.toml")).unwrap();
        let source = format!("{root}/src/lib.rs");
        cbindgen::Builder::new().with_src(source).with_config(config).generate().unwrap().write(&mut header);
        if std::env::var_os("APS_HEADER").is_some() {
            std::fs::write(&path, &header).unwrap();
        }
        let message = "apswitch.h is of another version: APS_HEADER=renew cargo test -p apswitch-c";
        assert!(std::fs::read(&path).unwrap_or_default() == header, "{message}");
    }
}
