// SPDX-License-Identifier: Apache-2.0
//! Packets of the running switch, explained: copies of received frames through the reference, with the entries and
//! registers that the switch has now. Nothing here is on the packet thread.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use apswitch_core::tap::{Tapped, TappedFrame};
use apswitch_dataplane::control::{Dataplane, PortNumber, Program, UpdateError, Value};
use apswitch_reference::packet_trace::Event;
use apswitch_reference::{Reference, Setup};
use tokio::sync::OwnedSemaphorePermit;

use crate::explain::ExplainedPacket;

/// Reading what was written takes at most this share of the time.
const MAX_SYNC_SHARE: u32 = 10;

/// The reference for a running program.
struct Explainer {
    dataplane: Dataplane,
    program: Arc<Program>,
    reference: Reference,
    /// Number of writes that the reference knows.
    synced: Option<u64>,
    next_sync: Instant,
}

impl Explainer {
    fn new(dataplane: Dataplane, program: Arc<Program>) -> Result<Explainer, UpdateError> {
        let (cpu_port, queues) = (dataplane.cpu_port(), dataplane.queues());
        let setup = Setup { ports: Vec::new(), cpu_port, queues, seed: 1 };
        let loaded = Reference::load(&program.source, setup);
        let mut reference = loaded.map_err(|e| UpdateError::FailedPrecondition(e.to_string()))?;
        reference.follow(dataplane.written()?.shared);
        reference.start_trace();
        Ok(Explainer { dataplane, program, reference, synced: None, next_sync: Instant::now() })
    }

    fn explain(&mut self, tapped: &TappedFrame) -> Vec<Event> {
        self.sync(tapped.time);
        self.reference.set_ports(self.dataplane.port_numbers());
        self.reference.receive(tapped.port, &tapped.frame, tapped.time);
        self.reference.take_trace()
    }

    /// Reads what was written, if that has changed and is due.
    fn sync(&mut self, now: u64) {
        let (writes, start) = (self.dataplane.writes(), Instant::now());
        if self.synced == Some(writes) || start < self.next_sync {
            return;
        }
        // Another program has other entries: the tap ends.
        let Some(store) = self.dataplane.written().ok().filter(|store| Arc::ptr_eq(&store.program, &self.program))
        else {
            return;
        };
        self.reference.sync(&store, now);
        self.synced = Some(writes);
        self.next_sync = Instant::now() + (MAX_SYNC_SHARE - 1) * start.elapsed();
    }
}

/// Packets as they come, one after the other.
pub struct Follower {
    dataplane: Dataplane,
    port: Option<PortNumber>,
    conditions: Vec<(String, Value)>,
    tapped: Tapped,
    explainer: Arc<Mutex<Explainer>>,
    place: Place,
    /// Packets so far.
    number: u64,
}

/// A client's place, held as long as work is done for it, also after it has gone.
pub type Place = Option<Arc<OwnedSemaphorePermit>>;

impl Follower {
    /// `conditions`: values of header fields. The error lists the fields that there are.
    pub async fn start(
        dataplane: Dataplane,
        port: Option<PortNumber>,
        conditions: Vec<(String, Value)>,
        place: Place,
    ) -> Result<Follower, UpdateError> {
        let (tapped, explainer) = open(&dataplane, port, &conditions, &place).await?;
        Ok(Follower { dataplane, port, conditions, tapped, explainer, place, number: 0 })
    }

    /// Returns the next packet, and the number of those before it that exceeded the limits. Continues with a program
    /// that replaces the running one; the error: it has no such field, or the switch ends.
    pub async fn next(&mut self) -> Result<(ExplainedPacket, u64), UpdateError> {
        let tapped = loop {
            match self.tapped.frames.recv().await {
                Ok(tapped) => break tapped,
                Err(_) => {
                    (self.tapped, self.explainer) =
                        open(&self.dataplane, self.port, &self.conditions, &self.place).await?;
                }
            }
        };
        let lost = self.tapped.take_lost();
        let clock = self.dataplane.clock();
        let time_ns = Some(clock.epoch() - clock.now().saturating_sub(tapped.time) as i64);
        let (explainer, place) = (self.explainer.clone(), self.place.clone());
        let explain = move || {
            let _place = place;
            explainer.lock().unwrap_or_else(PoisonError::into_inner).explain(&tapped)
        };
        let events = self.dataplane.aside(explain).await?;
        self.number += 1;
        Ok((ExplainedPacket { packet: self.number, time_ns, events }, lost))
    }
}

async fn open(
    dataplane: &Dataplane,
    port: Option<PortNumber>,
    conditions: &[(String, Value)],
    place: &Place,
) -> Result<(Tapped, Arc<Mutex<Explainer>>), UpdateError> {
    let (handle, conditions, place) = (dataplane.clone(), conditions.to_vec(), place.clone());
    let work = move || {
        let _place = place;
        let (program, tapped) = handle.tap(port, &conditions)?;
        Ok((tapped, Arc::new(Mutex::new(Explainer::new(handle, program)?))))
    };
    dataplane.aside(work).await?
}
