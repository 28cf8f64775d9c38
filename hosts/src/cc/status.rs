// SPDX-License-Identifier: Apache-2.0
//! Status of the controls, and of this network namespace's sockets that use them.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libbpf_rs::{Iter, ObjectBuilder};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::controls::{self, CONTROLS, Control};
use super::loaded::{self, Loaded};
use hosts_base::output::Format;
use hosts_base::{About, Error};

#[derive(Serialize)]
struct ControlRow {
    name: &'static str,
    kernel_name: &'static str,
    loaded: bool,
    /// Values by name; of a control that is not loaded, or not readable, the defaults.
    options: Map<String, Value>,
    counters: Map<String, Value>,
    about: &'static str,
}

/// Print all controls. Needs no rights; without them the options of loaded controls show their defaults.
pub fn list(format: Format) {
    let available = loaded::available();
    let known = loaded::all().unwrap_or_default();
    let rows: Vec<_> = CONTROLS.iter().map(|c| control_row(c, known.get(c.kernel_name), &available)).collect();
    let columns = ["name", "kernel's name", "loaded", "options", "counters", "about"];
    format.print(&rows, &columns, |r| {
        let loaded = if r.loaded { "yes" } else { "no" };
        [r.name, r.kernel_name, loaded, &words(&r.options), &words(&r.counters), r.about].map(String::from).to_vec()
    });
}

fn control_row(control: &'static Control, known: Option<&Loaded>, available: &[String]) -> ControlRow {
    let values = known.and_then(|l| l.options().ok());
    let values = values.unwrap_or_else(|| control.options.iter().map(|o| o.default).collect());
    let counts = known.and_then(|l| l.counters().ok()).unwrap_or_default();
    ControlRow {
        name: control.name,
        kernel_name: control.kernel_name,
        loaded: known.is_some() || available.iter().any(|name| name == control.kernel_name),
        options: control.options.iter().zip(values).map(|(o, v)| (o.name.to_string(), v.into())).collect(),
        counters: control.counters.iter().zip(counts).map(|(n, v)| (n.to_string(), v.into())).collect(),
        about: control.about,
    }
}

fn words(map: &Map<String, Value>) -> String {
    let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), String::from);
    map.iter().map(|(k, v)| format!("{k}={}", text(v))).collect::<Vec<_>>().join(" ")
}

/// Record of a socket by `bpf/cc_sockets.bpf.c`: its `struct record`, in its order.
struct Record<'a>(&'a [u8]);

const RECORD_SIZE: usize = 184;

impl Record<'_> {
    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.0[at..at + 2].try_into().expect("two bytes"))
    }

    fn control(&self) -> &str {
        let name = self.0[112..128].split(|&b| b == 0).next().unwrap_or_default();
        std::str::from_utf8(name).unwrap_or("?")
    }

    fn address(&self, at: usize, port: u16) -> SocketAddr {
        let bytes = &self.0[at..at + 16];
        let ip: IpAddr = if i32::from(self.u16(176)) == libc::AF_INET {
            <[u8; 4]>::try_from(&bytes[..4]).map(Ipv4Addr::from).expect("four bytes").into()
        } else {
            <[u8; 16]>::try_from(bytes).map(Ipv6Addr::from).expect("sixteen bytes").into()
        };
        SocketAddr::new(ip, port)
    }

    /// Decode the private state, by the structs of the BPF sources. Times in ms, rates in kbit/s.
    fn detail(&self) -> Map<String, Value> {
        const PRIVATE: usize = 8;
        let u32 = |at| self.u32(PRIVATE + at);
        let ms = |at| json!(f64::from(u32(at)) / 1e3);
        let flag = |at| json!(self.0[PRIVATE + at] != 0);
        let rtt = |at| if u32(at) == 0x7fff_ffff { Value::Null } else { ms(at) };
        let vegas = || vec![("active", flag(16)), ("base_rtt_ms", rtt(12))];
        let fields = match self.control() {
            "bpf_vegas" => vegas(),
            "bpf_vegas_fair" => [vegas(), vec![("introducing", flag(20))]].concat(),
            "bpf_westwood" => vec![("bandwidth_kbit", json!(self.u64(PRIVATE + 8) * 8 / 1000)), ("rtt_min_ms", ms(40))],
            "bpf_tcp_av" => vec![
                ("target_kbit", json!(u32(0))),
                ("target_window", json!(u32(4))),
                (
                    "state",
                    json!(match (u32(0), self.0[PRIVATE + 20]) {
                        (0, _) => "no target",
                        (_, 0) => "holding",
                        _ => "gave way",
                    }),
                ),
                ("gave_way", json!(u32(16))),
                ("loss_percent", json!((f64::from(u32(8)) / 65.536).round() / 10.0)),
            ],
            _ => Vec::new(),
        };
        fields.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }
}

#[derive(Serialize)]
struct SocketRow {
    cookie: u64,
    control: String,
    local: SocketAddr,
    remote: SocketAddr,
    tcp_state: &'static str,
    cwnd: u32,
    /// Slow-start threshold in segments; None: infinite.
    ssthresh: Option<u32>,
    rtt_ms: f64,
    mss: u32,
    detail: Map<String, Value>,
}

const TCP_STATES: [&str; 14] = [
    "?",
    "established",
    "syn-sent",
    "syn-received",
    "fin-wait-1",
    "fin-wait-2",
    "time-wait",
    "closed",
    "close-wait",
    "last-ack",
    "listen",
    "closing",
    "new-syn-received",
    "bound",
];

/// Print the sockets of this network namespace that use one of the controls.
pub fn status(format: Format) -> Result<(), Error> {
    let bytes = read_sockets()?;
    let rows: Vec<_> = bytes.chunks_exact(RECORD_SIZE).map(|r| socket_row(&Record(r))).collect();
    let columns = ["cookie", "control", "local", "remote", "state", "cwnd", "ssthresh", "rtt ms", "detail"];
    format.print(&rows, &columns, |r| {
        vec![
            r.cookie.to_string(),
            r.control.clone(),
            r.local.to_string(),
            r.remote.to_string(),
            r.tcp_state.to_string(),
            r.cwnd.to_string(),
            r.ssthresh.map_or("-".into(), |s| s.to_string()),
            r.rtt_ms.to_string(),
            words(&r.detail),
        ]
    });
    Ok(())
}

fn socket_row(record: &Record<'_>) -> SocketRow {
    let kernel_name = record.control();
    let ssthresh = record.u32(164);
    SocketRow {
        cookie: record.u64(0),
        control: controls::find(kernel_name).map_or(kernel_name, |c| c.name).to_string(),
        local: record.address(128, record.u16(178)),
        remote: record.address(144, record.u16(180)),
        tcp_state: TCP_STATES.get(usize::from(record.0[182])).unwrap_or(&"?"),
        cwnd: record.u32(160),
        ssthresh: (ssthresh < 0x7fff_ffff).then_some(ssthresh),
        rtt_ms: f64::from(record.u32(168)) / 1e3,
        mss: record.u32(172),
        detail: record.detail(),
    }
}

fn read_sockets() -> Result<Vec<u8>, Error> {
    let object = include_bytes!(concat!(env!("OUT_DIR"), "/cc_sockets.bpf.o"));
    let failed = |error: libbpf_rs::Error| match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => {
            Error::new("looking into sockets needs root (CAP_BPF and CAP_PERFMON); `ss -ti` works without")
        }
        _ => Error::new(format!("the kernel does not list its sockets by BPF, `ss -ti` does: {error:#}")),
    };
    let object = ObjectBuilder::default().open_memory(object).and_then(|o| o.load()).map_err(failed)?;
    let program = object.progs_mut().next().expect("the object has one program");
    let link = program.attach().map_err(failed)?;
    let mut bytes = Vec::new();
    Iter::new(&link).map_err(failed)?.read_to_end(&mut bytes).about("list sockets")?;
    Ok(bytes)
}
