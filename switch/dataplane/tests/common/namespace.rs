// SPDX-License-Identifier: Apache-2.0
//! A network namespace that a test enters alone, so that nothing of it is left however it ends.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};

/// Enters one, this thread and those that it starts: the switch's own, and `ip`. Needs root; false without, which it
/// says.
pub fn enter() -> bool {
    if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
        eprintln!("skipped: a network namespace of its own: {e}: run as root");
        return false;
    }
    // The kernel's own chatter; where there is no IPv6 there is none.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    true
}

pub fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("iproute2 is installed");
    assert!(status.success(), "ip {arguments}");
}

/// Creates the pair with both ends up; `left` belongs to the switch, `right` to the test.
pub fn pair(left: &str, right: &str) {
    ip(&format!("link add {left} type veth peer name {right}"));
    ip(&format!("link set {left} up"));
    ip(&format!("link set {right} up"));
    // The kernel says that they are up a moment later, when it has time: until then they are not.
    [left, right].into_iter().for_each(wait_until_up);
}

fn wait_until_up(interface: &str) {
    for _ in 0..1000 {
        let shown = Command::new("ip").args(["link", "show", interface]).output().expect("iproute2 is installed");
        if String::from_utf8_lossy(&shown.stdout).contains("state UP") {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("{interface} does not come up");
}
