// SPDX-License-Identifier: Apache-2.0
//! The command line of BMv2's `simple_switch` and `simple_switch_grpc`, in words of apswitch's own.
//!
//! The program takes it when it is called by one of these names. Every option of BMv2 has a row in [`OPTIONS`]; apswitch's
//! own options may stand between them.

use std::ffi::OsString;

/// BMv2's version of its JSON format.
const JSON_VERSION: &str = "2.24";
const DEFAULT_ADDRESS: &str = "0.0.0.0:9559";
/// BMv2's name for a switch without P4Runtime: several of them start with no address of its server.
const THRIFT_ALONE: &str = "simple_switch";
const ANY_ADDRESS: &str = "127.0.0.1:0";
const DEFAULT_THRIFT_PORT: u16 = 9090;
const MAX_QUEUES: u64 = 8;

/// Argument that an option takes.
#[derive(Clone, Copy, PartialEq)]
enum Takes {
    Nothing,
    Value,
    /// One that may be left out.
    Optional,
}

/// Effect of an option.
#[derive(Clone, Copy, PartialEq)]
enum Effect {
    /// Option of apswitch by the same name.
    Same,
    /// Handled in [`translate`].
    Own,
    /// No effect; the text says what is not done.
    Not(&'static str),
}

use Effect::{Not, Own, Same};
use Takes::{Nothing, Optional, Value};

/// Name, short name, argument, effect, and the help.
type Row = (&'static str, &'static str, Takes, Effect, &'static str);

const OPTIONS: &[Row] = &[
    ("help", "h", Nothing, Own, "this text"),
    ("interface", "i", Value, Same, "PORT@INTERFACE: a port and its interface; repeated"),
    ("pcap", "", Optional, Own, "[=DIR]: write what each port carries to pcap files, here if no directory is given"),
    ("use-files", "", Value, Same, "SECONDS: ports are pcap files, read after so many seconds"),
    ("packet-in", "", Value, Not("packets come from interfaces (-i) and files (--use-files)"), ""),
    ("thrift-port", "", Value, Own, "PORT (9090): BMv2's runtime interface over Thrift, on loopback"),
    ("device-id", "", Value, Own, "NUMBER (0): P4Runtime device id"),
    ("nanolog", "", Value, Not("packets are not reported over nanomsg: `apswitch trace` shows their steps"), ""),
    ("notifications-addr", "", Value, Own, "ipc://PATH: where simple_switch publishes digests over nanomsg"),
    ("debugger", "", Nothing, Not("there is no debugger: `apswitch trace` shows the steps of packets"), ""),
    ("debugger-addr", "", Value, Not("there is no debugger: `apswitch trace` shows the steps of packets"), ""),
    ("log-console", "", Nothing, Own, "write the log to standard output; without it: to standard error"),
    ("log-file", "", Value, Same, "FILE: write the log to this file"),
    ("log-level", "L", Value, Same, "LEVEL (info): trace, debug, info, warn, error or off"),
    ("log-flush", "", Nothing, Own, "write each line at once, as is always done"),
    ("log-file-max-size", "", Value, Not("the log is one file, whatever its size"), ""),
    ("log-file-max-files", "", Value, Not("the log is one file, whatever its size"), ""),
    ("restore-state", "", Value, Not("the switch starts without entries; clients write them over P4Runtime"), ""),
    ("dump-packet-data", "", Value, Not("packets are not in the log; --pcap writes them to files"), ""),
    ("version", "v", Nothing, Own, "the version"),
    ("json-version", "", Nothing, Own, "the highest version of BMv2's JSON that is understood"),
    ("no-p4", "", Nothing, Same, "start without a program and wait for a controller's"),
    ("max-port-count", "", Value, Not("the number of ports has no other end than their numbers, 0 to 510"), ""),
    ("load-modules", "", Value, Not("no modules are loaded; a program with externs beyond v1model's is refused"), ""),
    ("enable-swap", "", Nothing, Own, "let clients replace the program, as those of P4Runtime always may"),
    ("disable-swap", "", Nothing, Not("clients may replace the program"), ""),
    ("grpc-server-addr", "", Value, Own, "ADDRESS:PORT (0.0.0.0:9559): where the P4Runtime server listens"),
    ("grpc-server-ssl", "", Nothing, Own, "TLS, with the certificate and key below"),
    ("grpc-server-cacert", "", Value, Own, "FILE: authority of the clients' certificates"),
    ("grpc-server-cert", "", Value, Own, "FILE: certificate of the server"),
    ("grpc-server-key", "", Value, Own, "FILE: key of the certificate"),
    ("grpc-server-with-client-auth", "", Nothing, Own, "let in only clients with a certificate of that authority"),
    ("cpu-port", "", Value, Own, "PORT: port number of packet-in and packet-out"),
    ("drop-port", "", Value, Own, "PORT (511): packets that egress_spec sends there are dropped; no other is possible"),
    ("dp-grpc-server-addr", "", Value, Not("packets come from interfaces (-i) and files (--use-files)"), ""),
    ("priority-queues", "", Value, Own, "NUMBER (1): queues of each port, at most 8"),
    ("max-mc-groups", "", Value, Not("the limits are 65535 groups and 1048576 replicas"), ""),
    ("max-l1-entries", "", Value, Not("the limits are 65535 groups and 1048576 replicas"), ""),
    ("max-l2-entries", "", Value, Not("the limits are 65535 groups and 1048576 replicas"), ""),
];

/// A command line of BMv2.
#[derive(Debug, PartialEq)]
pub enum Line {
    /// A text to print, and nothing else.
    Text(String),
    Start(Start),
}

#[derive(Debug, Default, PartialEq)]
pub struct Start {
    /// The line in apswitch's words, without the program's name.
    pub words: Vec<OsString>,
    /// Lines of the log: what is not done.
    pub notes: Vec<String>,
    pub log_to_stdout: bool,
    /// Port of the Thrift server, and whether the line names it.
    pub thrift: Option<(u16, bool)>,
    /// Address that digests are published at.
    pub notifications: Option<String>,
}

/// Returns true if the program is called as BMv2's.
pub fn is_called(program: &OsString) -> bool {
    has_name(program, "simple_switch_grpc") || has_name(program, THRIFT_ALONE)
}

fn has_name(program: &OsString, name: &str) -> bool {
    std::path::Path::new(program).file_name().is_some_and(|own| own == name)
}

/// The option that a name or the beginning of one means.
fn find(name: &str) -> Option<&'static Row> {
    let exact = OPTIONS.iter().find(|row| row.0 == name);
    let mut begun = OPTIONS.iter().filter(|row| !name.is_empty() && row.0.starts_with(name));
    exact.or_else(|| begun.next().filter(|_| begun.next().is_none()))
}

/// Takes a word apart: an option, and the argument that stands in the same word.
fn option(word: &str) -> Option<(&'static Row, Option<String>)> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value.to_owned())));
        return Some((find(name)?, value));
    }
    let mut letters = word.strip_prefix('-')?.chars();
    let short = letters.next()?.to_string();
    let row = OPTIONS.iter().find(|row| row.1 == short)?;
    Some((row, Some(letters.as_str().to_owned()).filter(|rest| !rest.is_empty())))
}

impl Start {
    /// Keeps the last `-i` of each interface: Mininet-WiFi gives that of a radio two numbers.
    /// BMv2 takes each frame of such an interface in twice.
    fn spare_second_numbers(&mut self, given: &[(&str, String)]) {
        let interfaces = given.iter().filter(|(name, _)| *name == "interface").filter_map(|(_, value)| {
            let (number, interface) = value.split_once('@')?;
            Some((value, number, interface))
        });
        let interfaces: Vec<_> = interfaces.collect();
        for (place, (value, number, interface)) in interfaces.iter().enumerate() {
            let same = |later: &&(_, &str, &str)| later.2 == *interface && later.1 != *number;
            let Some((_, later, _)) = interfaces[place + 1..].iter().find(same) else { continue };
            if let Some(at) = self.words.iter().position(|word| word == value.as_str()) {
                self.words.drain(at - 1..=at);
            }
            self.notes.push(format!("-i {value} has no effect: {interface} is port {later}, too"));
        }
    }
}

/// Translates a line of BMv2: what the program is called, and the words behind it.
pub fn translate(program: &OsString, line: impl IntoIterator<Item = OsString>) -> Result<Line, String> {
    let is_thrift_alone = has_name(program, THRIFT_ALONE);
    let mut words = line.into_iter().peekable();
    let mut start = Start::default();
    let mut given: Vec<(&str, String)> = Vec::new();
    let mut is_own = false;
    while let Some(word) = words.next() {
        if word == "--" {
            continue;
        }
        let Some((&(name, _, takes, effect, _), inline)) = word.to_str().and_then(option) else {
            // apswitch's own, or the program.
            let is_option = word.to_string_lossy().starts_with('-');
            let is_program = !is_option && !is_own && word.to_string_lossy().ends_with(".json");
            given.extend(is_program.then(|| ("", word.to_string_lossy().into_owned())));
            start.words.push(word);
            is_own = is_option;
            continue;
        };
        is_own = false;
        let is_value = |next: &OsString| {
            let next = next.to_string_lossy();
            takes == Value || !next.starts_with('-') && !next.ends_with(".json")
        };
        let value = match (takes, inline) {
            (Nothing, Some(_)) => return Err(format!("--{name} takes no argument")),
            (Nothing, None) => String::new(),
            (_, Some(value)) => value,
            (_, None) => match words.next_if(is_value) {
                Some(value) => value.to_string_lossy().into_owned(),
                None if takes == Optional => ".".into(),
                None => return Err(format!("--{name} needs an argument")),
            },
        };
        match effect {
            Same => {
                start.words.push(format!("--{name}").into());
                start.words.extend((takes == Value).then(|| value.clone().into()));
            }
            Not(what) => start.notes.push(format!("--{name} has no effect: {what}")),
            Own => {}
        }
        given.push((name, value));
    }
    let value = |name: &str| given.iter().rev().find(|(given, _)| *given == name).map(|(_, value)| value.as_str());
    if value("help").is_some() {
        return Ok(Line::Text(help()));
    }
    if value("version").is_some() {
        return Ok(Line::Text(format!("apswitch {}", env!("CARGO_PKG_VERSION"))));
    }
    if value("json-version").is_some() {
        return Ok(Line::Text(JSON_VERSION.into()));
    }
    start.spare_second_numbers(&given);
    if value("log-console").is_some() && value("log-file").is_some() {
        return Err("--log-console and --log-file are exclusive: give one of them".into());
    }
    start.log_to_stdout = value("log-console").is_some();
    if let (Some(program), Some(_)) = (value(""), value("no-p4")) {
        start.words.retain(|word| word.to_string_lossy() != program);
        start.notes.push(format!("{program} is not loaded, as --no-p4 asks for"));
    }
    let number = |name: &str, value: &str, most: u64| {
        value
            .parse::<u64>()
            .ok()
            .filter(|number| *number <= most)
            .ok_or(format!("--{name} {value}: give a number up to {most}"))
    };
    let has_own_tls = start.words.iter().any(|word| word.to_string_lossy().starts_with("--tls-cert"));
    let mut push = |name: &str, value: &str| start.words.extend([format!("--{name}").into(), value.into()]);
    let device_id = value("device-id").unwrap_or("0");
    push("device-id", device_id);
    if let Some(directory) = value("pcap") {
        push("pcap", directory);
    }
    let queues = number("priority-queues", value("priority-queues").unwrap_or("1"), u32::MAX.into())?;
    push("priority-queues", &queues.clamp(1, MAX_QUEUES).to_string());
    if queues > MAX_QUEUES {
        start
            .notes
            .push(format!("--priority-queues {queues}: v1model's priorities have 3 bits, so there are {MAX_QUEUES}"));
    }
    match value("cpu-port") {
        Some("0") => return Err("--cpu-port 0 is not valid: give a port number from 1 to 510".into()),
        Some(port) => push("cpu-port", port),
        None => {}
    }
    if let Some(port) = value("drop-port").map(|port| number("drop-port", port, 511)).transpose()?
        && port != 511
    {
        start.notes.push(format!("--drop-port {port} has no effect: 511 is the port of dropped packets"));
    }
    let default_address = if is_thrift_alone { ANY_ADDRESS } else { DEFAULT_ADDRESS };
    let address = value("grpc-server-addr").unwrap_or(default_address);
    push("grpc-server-addr", address);
    let is_ssl = value("grpc-server-ssl").is_some();
    let has_tls = is_ssl || has_own_tls;
    if is_ssl {
        let (Some(cert), Some(key)) = (value("grpc-server-cert"), value("grpc-server-key")) else {
            return Err("--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key".into());
        };
        push("tls-cert", cert);
        push("tls-key", key);
        match (value("grpc-server-with-client-auth"), value("grpc-server-cacert")) {
            (Some(_), Some(authority)) => push("tls-client-ca", authority),
            (Some(_), None) => return Err("--grpc-server-with-client-auth needs --grpc-server-cacert".into()),
            (None, _) => {}
        }
    } else if !has_tls {
        start.words.retain(|word| word != "--insecure");
        start.words.push("--insecure".into());
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let is_loopback = host == "localhost"
            || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
        if !is_loopback {
            start.notes.push(format!(
                "any client that reaches {address} controls the switch: give an address of loopback, or --grpc-server-ssl \
                 with --grpc-server-with-client-auth"
            ));
        }
    }
    let port = value("thrift-port").map(|port| number("thrift-port", port, u16::MAX.into())).transpose()?;
    match port {
        Some(_) if has_tls => start.notes.push(
            "--thrift-port has no effect with TLS: Thrift has no authentication, so that every user of \
             this machine would control the switch"
                .into(),
        ),
        None if has_tls => {}
        port => {
            let is_asked_for = port.is_some() || is_thrift_alone;
            start.thrift = Some((port.map_or(DEFAULT_THRIFT_PORT, |port| port as u16), is_asked_for));
        }
    }
    match value("notifications-addr") {
        address if is_thrift_alone => {
            let default = || format!("ipc:///tmp/bmv2-{device_id}-notifications.ipc");
            start.notifications = Some(address.map_or_else(default, str::to_owned));
        }
        Some(_) => {
            start.notes.push("--notifications-addr has no effect: digests and idle timeouts come over P4Runtime".into())
        }
        None => {}
    }
    Ok(Line::Start(start))
}

fn help() -> String {
    let mut text = String::from(
        "apswitch, with the command line of BMv2's simple_switch_grpc\n\n\
         Usage: simple_switch_grpc [OPTIONS] FILE.json [-- OPTIONS]\n       simple_switch_grpc [OPTIONS] --no-p4 [-- OPTIONS]\n\n\
         Options, before or after `--`, with their defaults; those of `apswitch --help` are taken, too:\n",
    );
    for (name, short, _, effect, help) in OPTIONS {
        let short = if short.is_empty() { String::new() } else { format!("-{short}, ") };
        let help = match effect {
            Not(what) => format!("has no effect: {what}"),
            Same | Own => (*help).to_owned(),
        };
        text += &format!("  {:<36} {help}\n", format!("{short}--{name}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(line: &str) -> Start {
        match translate(&"simple_switch_grpc".into(), line.split_whitespace().map(OsString::from)) {
            Ok(Line::Start(start)) => start,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn words(start: &Start) -> String {
        start.words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    const DEFAULTS: &str = "--device-id 0 --priority-queues 1 --grpc-server-addr 0.0.0.0:9559 --insecure";

    #[test]
    fn line_of_the_tutorials_has_bmv2s_defaults() {
        let line = "-i 1@s1-eth1 -i2@s1-eth2 --pcap pcaps --nanolog ipc:///tmp/bm-0-log.ipc --device-id 0 build/basic.json \
                    --log-console --thrift-port 9090 -- --grpc-server-addr 0.0.0.0:50051";
        let start = start(line);
        assert_eq!(
            words(&start),
            "--interface 1@s1-eth1 --interface 2@s1-eth2 build/basic.json --device-id 0 --pcap pcaps --priority-queues 1 \
             --grpc-server-addr 0.0.0.0:50051 --insecure"
        );
        assert!(start.log_to_stdout && start.thrift == Some((9090, true)));
        assert_eq!(start.notes.len(), 2, "{:?}", start.notes);
        assert!(
            start.notes[0].contains("--nanolog has no effect") && start.notes[1].contains("0.0.0.0:50051 controls")
        );
    }

    #[test]
    fn line_of_simple_switch_has_thrift_and_notifications() {
        let line = "-i 1@s1-eth1 --thrift-port 9092 --device-id 2 a.json";
        let translated = translate(&"/usr/bin/simple_switch".into(), line.split_whitespace().map(OsString::from));
        let Ok(Line::Start(start)) = translated else { panic!("{translated:?}") };
        assert!(words(&start).contains("--grpc-server-addr 127.0.0.1:0 --insecure"), "{}", words(&start));
        assert_eq!(start.thrift, Some((9092, true)));
        assert_eq!(start.notifications.as_deref(), Some("ipc:///tmp/bmv2-2-notifications.ipc"));
        assert!(start.notes.is_empty(), "{:?}", start.notes);
    }

    #[test]
    fn thrift_is_not_served_beside_tls() {
        for tls in [
            "-- --grpc-server-ssl --grpc-server-cert c --grpc-server-key k",
            "--tls-cert c --tls-key=k",
            "--tls-cert=c",
        ] {
            let asked = start(&format!("a.json --thrift-port 9090 {tls}"));
            assert_eq!(asked.thrift, None);
            assert!(asked.notes[0].contains("Thrift has no authentication"), "{:?}", asked.notes);
            assert_eq!(start(&format!("a.json {tls}")).thrift, None);
        }
    }

    #[test]
    fn line_of_mininet_wifi_has_its_radio_as_one_port() {
        let start = start("-i 0@ap1-wlan1 -i 1@ap1-wlan1 -i 2@ap1-eth2 ap.json");
        assert_eq!(words(&start), format!("--interface 1@ap1-wlan1 --interface 2@ap1-eth2 ap.json {DEFAULTS}"));
        assert!(start.notes[0].contains("-i 0@ap1-wlan1 has no effect: ap1-wlan1 is port 1"), "{:?}", start.notes);
    }

    #[test]
    fn every_option_is_taken_and_said_if_it_has_no_effect() {
        for &(name, _, takes, effect, help) in OPTIONS {
            let argument = if takes == Value { " 511" } else { "" };
            let line = format!("--{name}{argument} x.json --grpc-server-addr 127.0.0.1:1");
            let said = matches!(effect, Not(_));
            match translate(&"simple_switch_grpc".into(), line.split_whitespace().map(OsString::from)) {
                Ok(Line::Start(start)) => {
                    let is_said = start.notes.iter().any(|note| note.starts_with(&format!("--{name} has")));
                    // Digests are published under the other name alone.
                    assert_eq!(is_said, said || name == "notifications-addr", "{line}");
                }
                Ok(Line::Text(_)) => {}
                Err(reason) => assert!(name.starts_with("grpc-server-"), "{line}: {reason}"),
            }
            assert_eq!(help.is_empty(), said, "{name}");
        }
    }

    #[test]
    fn options_are_begun_inline_and_of_apswitch() {
        assert_eq!(words(&start("--log-cons a.json")), format!("a.json {DEFAULTS}"));
        assert_eq!(
            words(&start("-Lwarn --log-level=error a.json --link 1:rate=5mbit --seed 3")),
            format!("--log-level warn --log-level error a.json --link 1:rate=5mbit --seed 3 {DEFAULTS}")
        );
        assert_eq!(
            words(&start("--pcap a.json")),
            "a.json --device-id 0 --pcap . --priority-queues 1 --grpc-server-addr 0.0.0.0:9559 --insecure"
        );
        assert_eq!(words(&start("--no-p4 a.json")), format!("--no-p4 {DEFAULTS}"));
        assert_eq!(start("a.json").thrift, Some((9090, false)));
        let quiet = start("a.json -- --grpc-server-addr [::1]:9559 --drop-port 511 --priority-queues 8 --cpu-port 255");
        assert!(quiet.notes.is_empty(), "{:?}", quiet.notes);
        assert_eq!(start("a.json -- --drop-port 100 --priority-queues 16").notes.len(), 3);
    }

    #[test]
    fn tls_is_that_of_grpc_server_ssl() {
        let tls = "a.json -- --grpc-server-ssl --grpc-server-cert c --grpc-server-key k --grpc-server-cacert a";
        assert!(words(&start(tls)).ends_with("--tls-cert c --tls-key k"));
        let mutual = start(&format!("{tls} --grpc-server-with-client-auth"));
        assert!(words(&mutual).ends_with("--tls-cert c --tls-key k --tls-client-ca a") && mutual.notes.is_empty());
    }

    #[test]
    fn bad_line_is_refused_with_its_fix() {
        for (line, message) in [
            ("--thrift-port", "--thrift-port needs an argument"),
            ("--no-p4=x", "takes no argument"),
            ("a.json --log-console --log-file x", "exclusive"),
            ("a.json -- --cpu-port 0", "from 1 to 510"),
            ("a.json -- --drop-port 600", "up to 511"),
            ("a.json -- --grpc-server-ssl", "--grpc-server-cert"),
            ("a.json --thrift-port 70000", "up to 65535"),
        ] {
            let error =
                translate(&"simple_switch_grpc".into(), line.split_whitespace().map(OsString::from)).unwrap_err();
            assert!(error.contains(message), "{line}: {error}");
        }
        assert!(
            matches!(translate(&"simple_switch_grpc".into(), ["--help".into()]), Ok(Line::Text(text)) if text.contains("--drop-port"))
        );
        assert_eq!(translate(&"simple_switch_grpc".into(), ["--json-version".into()]), Ok(Line::Text("2.24".into())));
    }
}
