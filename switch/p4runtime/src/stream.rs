// SPDX-License-Identifier: Apache-2.0
//! `StreamChannel` and what the data plane has to tell: packets, digests, idle entries (P4Runtime 1.4, "P4Runtime
//! Stream Messages").

use std::collections::BTreeMap;
use std::time::Duration;

use apswitch_dataplane::control::{Digest, Events, Notice, PacketIn, TableEntry, Update};
use async_channel::Sender;

use super::arbitration::ClientId;
use super::clients::{Outgoing, offer};
use super::device::Device;
use super::digest::DigestList;
use super::entry;
use super::error::{Checked, Refusal, Status, refuse};
use super::packet_io;
use super::proto::p4::v1 as p4;
use super::proto::p4::v1::stream_error::Details;
use super::proto::p4::v1::stream_message_request::Update as Request;
use super::proto::p4::v1::stream_message_response::Update as Response;
use super::role::Access;

/// Idle entries in one notification.
pub const MAX_IDLE_ENTRIES: usize = 256;

/// A client that has become primary, and waits for its notice.
pub struct NewPrimary {
    client: ClientId,
    was_primary: bool,
}

/// Handles an arbitration message; an error ends the stream. The new primary starts with [`welcome`] when the writes of
/// its predecessor have ended.
pub fn arbitrate(
    device: &Device,
    client: ClientId,
    update: &p4::MasterArbitrationUpdate,
) -> Result<Option<NewPrimary>, Status> {
    let was_primary = device.clients.is_primary(client);
    let is_new = device.clients.arbitrate(client, update)?;
    Ok(is_new.then_some(NewPrimary { client, was_primary }))
}

/// Starts a primary, with digests that it has not seen. To be called where no write is under way.
pub async fn welcome(device: &Device, NewPrimary { client, was_primary }: NewPrimary) {
    if !was_primary {
        device.dataplane.write(device.digests.acknowledge_all()).await;
    }
    device.clients.welcome_primary(client);
}

/// Handles a message other than arbitration. To be called where no pipeline is being exchanged, if it is an
/// acknowledgement.
pub async fn handle(device: &Device, client: ClientId, queue: &Sender<Outgoing>, update: Option<Request>) {
    if let Err((refusal, details)) = request(device, client, update).await {
        let (canonical_code, message) = (refusal.code as i32, refusal.message);
        let error = p4::StreamError { canonical_code, message, details: Some(details), ..Default::default() };
        offer(queue, Response::Error(error));
    }
}

async fn request(device: &Device, client: ClientId, update: Option<Request>) -> Result<(), (Refusal, Details)> {
    let is_primary = device.clients.is_primary(client);
    let only_primary = |what: &str| match is_primary {
        true => Ok(()),
        false => refuse!(PermissionDenied, "only the primary may send {what}"),
    };
    match update {
        Some(Request::Packet(packet)) => {
            let sent = only_primary("packets").and_then(|()| packet_out(device, &packet));
            sent.map_err(|refusal| (refusal, Details::PacketOut(p4::PacketOutError { packet_out: Some(packet) })))
        }
        Some(Request::DigestAck(ack)) => {
            let checked = only_primary("digest acknowledgements").and_then(|()| digest_ack(device, ack));
            let updates = checked.map_err(|refusal| {
                (refusal, Details::DigestListAck(p4::DigestListAckError { digest_list_ack: Some(ack) }))
            })?;
            device.dataplane.write(updates).await;
            Ok(())
        }
        Some(Request::Other(other)) => {
            let refusal = refuse!(Unimplemented, "messages of type {} are not supported", other.type_url);
            refusal.map_err(|refusal| (refusal, Details::Other(p4::StreamOtherError { other: Some(other) })))
        }
        Some(Request::Arbitration(_)) | None => {
            let refusal = refuse!(InvalidArgument, "the stream message is empty");
            refusal.map_err(|refusal| (refusal, Details::Other(p4::StreamOtherError { other: None })))
        }
    }
}

fn packet_out(device: &Device, packet: &p4::PacketOut) -> Checked<()> {
    let pipeline = device.pipeline()?;
    let frame = packet_io::packet_out(&pipeline.schema.packet_out, packet)?;
    Ok(device.dataplane.inject(frame)?)
}

fn digest_ack(device: &Device, ack: p4::DigestListAck) -> Checked<Vec<Update>> {
    let pipeline = device.pipeline()?;
    super::schema::known(&pipeline.schema.digests, "digest", ack.digest_id)?;
    Ok(device.digests.acknowledge(ack.digest_id, ack.list_id))
}

/// Passes a packet of the CPU port on to the primaries.
pub fn deliver_packet(device: &Device, packet: PacketIn) {
    if let Ok(pipeline) = device.pipeline()
        && let Some(message) = packet_io::packet_in(&pipeline.schema.packet_in, packet.frame)
    {
        device.clients.send_to_primaries(Response::Packet(message), |access, message| match message {
            Response::Packet(packet) => access.gets_packet(&packet.metadata),
            _ => false,
        });
    }
}

/// Collects a digest's sample; answers the list that it completes, if any.
pub fn offer_sample(device: &Device, sample: Digest) -> Option<(u32, DigestList)> {
    let pipeline = device.pipeline().ok()?;
    let (id, _) = pipeline.schema.digest_of(sample.digest)?;
    Some((id, device.digests.lock().get_mut(&id)?.offer(sample, now(device))?))
}

/// Passes a list of digests on to the primaries.
pub async fn send_list(device: &Device, digest_id: u32, list: DigestList) {
    let Ok(pipeline) = device.pipeline() else { return };
    let Some(digest) = pipeline.schema.digests.get(&digest_id) else { return };
    let data = list.samples.iter().filter_map(|values| digest.data.encode(values)).collect();
    let message =
        p4::DigestList { digest_id, list_id: list.list_id, data, timestamp: device.dataplane.clock().epoch() };
    if !device.clients.send_to_primaries(Response::Digest(message), |access, _| access.has(digest_id)) {
        // Nobody got it, so nobody will acknowledge it.
        device.dataplane.write(device.digests.acknowledge(digest_id, list.list_id)).await;
    }
}

/// Passes idle entries on to the primaries, in one message.
pub fn deliver_idle(device: &Device, notices: impl IntoIterator<Item = Notice>) {
    let Ok(pipeline) = device.pipeline() else { return };
    let idle = |notice| match notice {
        Notice::IdleTimeout(entry) => Some(entry),
        Notice::PortState { .. } => None,
    };
    let message = |entry: Box<TableEntry>| Some(entry::key_message(pipeline.schema.table_of(entry.table)?, &entry));
    let table_entry: Vec<p4::TableEntry> = notices.into_iter().filter_map(idle).filter_map(message).collect();
    if !table_entry.is_empty() {
        send_idle(device, table_entry);
    }
}

/// Sends to each primary the idle entries that belong to its role.
fn send_idle(device: &Device, table_entry: Vec<p4::TableEntry>) {
    let send = |table_entry, is_for: &dyn Fn(&Access) -> bool| {
        let message = p4::IdleTimeoutNotification { table_entry, timestamp: device.dataplane.clock().epoch() };
        device.clients.send_to_primaries(Response::IdleTimeoutNotification(message), |access, _| is_for(access));
    };
    let mut by_table: BTreeMap<u32, Vec<p4::TableEntry>> = BTreeMap::new();
    if device.clients.with_arbiter(|arbiter| arbiter.primaries().any(|(_, access)| !access.is_full())) {
        table_entry.iter().for_each(|entry| by_table.entry(entry.table_id).or_default().push(entry.clone()));
    }
    send(table_entry, &Access::is_full);
    for (id, table_entry) in by_table {
        send(table_entry, &|access| !access.is_full() && access.has(id));
    }
}

/// Since the start of the switch.
pub fn now(device: &Device) -> Duration {
    Duration::from_nanos(device.dataplane.clock().now())
}

/// Delivers the data plane's events so far to the primaries, for a caller that sets the clock.
pub async fn deliver_now(device: &Device, events: &mut Events) {
    while let Ok(packet) = events.packet_ins.try_recv() {
        deliver_packet(device, packet);
    }
    while let Ok(sample) = events.digests.try_recv() {
        if let Some((id, list)) = offer_sample(device, sample) {
            send_list(device, id, list).await;
        }
    }
    for (id, list) in device.digests.poll(now(device)) {
        send_list(device, id, list).await;
    }
    while !events.notices.is_empty() {
        deliver_idle(device, std::iter::from_fn(|| events.notices.try_recv().ok()).take(MAX_IDLE_ENTRIES));
    }
}
