// SPDX-License-Identifier: Apache-2.0
//! A switch whose ports end in the test.

use std::time::Duration;

use apswitch_dataplane::control::*;

/// Time within which everything arrives that arrives at all.
pub const SOON: Duration = Duration::from_secs(60);
/// Long enough to believe that nothing more arrives, after something that was sent later has arrived.
const NOTHING: Duration = Duration::from_millis(5);

pub struct Lab {
    pub dataplane: Dataplane,
    pub events: Events,
    /// In the order of the ports.
    pub ends: Vec<MemoryEnd>,
}

impl Lab {
    /// Ports 1, 2, ... with their link models.
    pub fn new(program: Program, links: &[Option<LinkConfig>]) -> Lab {
        let ports = links.iter().enumerate().map(|(index, link)| PortConfig {
            number: index as u16 + 1,
            interface: format!("memory{}", index + 1),
            link: link.clone(),
        });
        let config = DataplaneConfig {
            ports: ports.collect(),
            cpu_port: Some(510),
            priority_queues: 8,
            seed: 1,
            capture: None,
            aside: at_once,
        };
        let (dataplane, events, ends) = Dataplane::start_in_memory(config).unwrap();
        dataplane.commit_blocking(program).unwrap();
        Lab { dataplane, events, ends }
    }

    pub fn program(&self) -> std::sync::Arc<Program> {
        self.dataplane.program().unwrap()
    }

    /// Applies updates that must succeed.
    pub fn write(&self, updates: Vec<Update>) {
        for (index, result) in self.dataplane.write_blocking(updates).into_iter().enumerate() {
            result.unwrap_or_else(|e| panic!("update {index}: {e}"));
        }
    }

    pub fn refused(&self, update: Update) -> UpdateError {
        self.dataplane.write_blocking(vec![update]).remove(0).unwrap_err()
    }

    /// Port numbers start at 1.
    pub fn send(&self, port: u16, frame: &[u8]) {
        assert!(self.ends[port as usize - 1].send(frame));
    }

    pub fn receive(&self, port: u16) -> Vec<u8> {
        self.ends[port as usize - 1].receive(SOON).unwrap_or_else(|| panic!("nothing arrived at port {port}"))
    }

    pub fn nothing(&self, port: u16) {
        let frame = self.ends[port as usize - 1].receive(NOTHING);
        assert!(frame.is_none(), "port {port}: {frame:02x?}");
    }

    /// Waits until the switch has taken `packets` frames from the port.
    pub fn wait_for_packets(&self, port: u16, packets: u64) {
        let deadline = std::time::Instant::now() + SOON;
        loop {
            let stats = self.dataplane.ports()[port as usize - 1].stats;
            if stats.rx_packets + stats.rx_errors >= packets {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "port {port} has received {} of {packets}", stats.rx_packets);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.dataplane.stop();
    }
}
