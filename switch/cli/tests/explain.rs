// SPDX-License-Identifier: Apache-2.0
//! `apswitch explain`, and ports that are files, by running the program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn apswitch(arguments: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_apswitch")).current_dir(root).args(arguments).output().unwrap()
}

const EXAMPLE: [&str; 5] =
    ["explain", "p4src/compiled/ap.json", "docs/switch/example.pcap", "--entries", "docs/switch/entries.json"];

fn explain(more: &[&str]) -> Output {
    apswitch(&[&EXAMPLE, more].concat())
}

#[test]
fn a_packets_way_in_words() {
    let done = explain(&[]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let told = String::from_utf8(done.stdout).unwrap();
    let packets: Vec<&str> = told.split("\npacket ").collect();
    assert_eq!(packets.len(), 4, "{told}");
    for (packet, words) in [
        (0, "from port 1"),
        (0, "ethernet.ether_type = 0x800: goes to"),
        (0, "dst_addr = 02:00:00:00:00:02, outer_vid = 0, inner_vid = 0: hits [dst_addr 0x20000000002, "),
        (0, "forward_to(egress_port = 2)"),
        (0, "hits [direction any"),
        (0, "to port 2, queue 3"),
        (0, "bytes leave through port 2"),
        (1, "tcp: src_port = 0x9c40"),
        (1, "digest"),
        (2, "no entry: default"),
        (2, "multicast group 1: copies to ports 1, 2"),
        // Nothing goes back to its own port.
        (2, "dropped: egress_spec is 511 at the end of egress, set by `"),
        (3, "error PacketTooShort in state"),
    ] {
        assert!(packets[packet].contains(words), "packet {}: no `{words}` in\n{}", packet + 1, packets[packet]);
    }
}

#[test]
fn a_packets_way_as_data() {
    let done = explain(&["--json", "--packet", "3"]);
    let lines: Vec<Value> =
        String::from_utf8(done.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [told] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(told["packet"], 3);
    let events = told["events"].as_array().unwrap();
    let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).cloned().collect::<Vec<_>>();
    assert_eq!(of("multicast")[0]["ports"], serde_json::json!([1, 2]));
    assert_eq!((of("sent").len(), of("dropped").len()), (1, 1));
    assert_eq!(of("sent")[0]["port"], 2);
}

#[test]
fn bad_input_is_named() {
    let entries = |text: &str| {
        let path = scratch("bad.json");
        std::fs::write(&path, text).unwrap();
        let done = apswitch(&["explain", EXAMPLE[1], EXAMPLE[2], "--entries", path.to_str().unwrap()]);
        std::fs::remove_file(&path).unwrap();
        done
    };
    let entry = |rest: &str| entries(&format!("{{\"table_entries\": [{{\"table\": \"forward\", {rest}}}]}}"));
    for (done, message) in [
        (apswitch(&["explain", "p4src/v1model/ap.p4", EXAMPLE[2]]), "p4src/v1model/ap.p4: "),
        (apswitch(&["explain", EXAMPLE[1], "missing.pcap"]), "missing.pcap: No such file"),
        (apswitch(&["explain", EXAMPLE[1], "p4src/v1model/ap.p4"]), "is not a pcap file"),
        (explain(&["--packet", "9"]), "holds 4 packets"),
        (entries("{\"table_entries\": [{\"table\": \"backward\"}]}"), "there is no table `backward`"),
        (entry("\"action_name\": \"fly\""), "there is no action `fly`"),
        (entry("\"action_name\": \"flood\""), "key field `dst_addr`: an exact field needs a value"),
        (entry("\"action_name\": \"flood\", \"match\": {\"dst\": 1}"), "has no key field `dst`"),
        (entry("\"action_name\": \"flood\", \"match\": {\"dst_addr\": \"x\"}"), "`x` is not a number"),
        (
            entry("\"action_name\": \"forward_to\", \"match\": {\"dst_addr\": 1, \"outer_vid\": 0, \"inner_vid\": 0}"),
            "`egress_port` of `forward_to`: is missing",
        ),
        (
            entry(
                "\"action_name\": \"flood\", \"match\": {\"dst_addr\": \"0xffffffffffffff\", \"outer_vid\": 0, \"inner_vid\": 0}",
            ),
            "does not fit in 48 bits",
        ),
    ] {
        let error = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{error}");
        assert!(error.contains(message) && error.lines().count() == 1, "`{message}`: {error}");
    }
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("apswitch-{}-{name}", std::process::id()))
}
