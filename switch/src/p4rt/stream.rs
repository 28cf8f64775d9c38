// SPDX-License-Identifier: Apache-2.0
//! `StreamChannel` and what the data plane has to tell: packets, digests, idle entries (P4Runtime 1.4, "P4Runtime
//! Stream Messages").

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};

use super::arbitration::ClientId;
use super::clients::{MAX_SILENCE, Opened, Outgoing, offer};
use super::digest::DigestList;
use super::entry;
use super::error::{Checked, Refusal, refuse};
use super::message_size::too_long;
use super::packet_io;
use super::proto::p4::v1 as p4;
use super::proto::p4::v1::stream_error::Details;
use super::proto::p4::v1::stream_message_request::Update as Request;
use super::proto::p4::v1::stream_message_response::Update as Response;
use super::role::Access;
use super::shared::Shared;
use crate::control::{Digest, Events, Notice, PacketIn, TableEntry, Update};
use crate::peer::{self, Peer};

/// Time that a stream which ends with an error waits for its client to take it.
const LAST_WORD: Duration = Duration::from_secs(5);
/// Idle entries in one notification.
const MAX_IDLE_ENTRIES: usize = 256;

/// Serves one stream until either side ends it.
pub async fn serve(
    shared: Arc<Shared>,
    opened: Opened,
    peer: Option<Peer>,
    mut incoming: Streaming<p4::StreamMessageRequest>,
) {
    let Opened { id, queue, mut stalled } = opened;
    let silence = tokio::time::sleep(MAX_SILENCE);
    tokio::pin!(silence);
    let mut is_silent = true;
    let last_word = loop {
        let message = tokio::select! {
            () = &mut silence, if is_silent => {
                let reason = format!("no arbitration came within {} s", MAX_SILENCE.as_secs());
                break Some(Status::deadline_exceeded(reason));
            }
            message = incoming.message() => message,
            _ = &mut stalled => break None,
            () = queue.closed() => break None,
        };
        let update = match message {
            Ok(Some(message)) => message.update,
            Ok(None) => break None,
            Err(status) if status.code() == Code::ResourceExhausted => break Some(status),
            Err(status) => break too_long(&status),
        };
        is_silent &= !matches!(update, Some(Request::Arbitration(_)));
        if let Err(status) = handle(&shared, id, &queue, peer.as_ref(), update).await {
            break Some(status);
        }
    };
    shared.clients.close(id);
    if let Some(status) = last_word {
        let _ = tokio::time::timeout(LAST_WORD, queue.send(Err(status))).await;
    }
}

/// Handles a message of a stream; an error ends it.
pub async fn handle(
    shared: &Shared,
    id: ClientId,
    queue: &mpsc::Sender<Outgoing>,
    peer: Option<&Peer>,
    update: Option<Request>,
) -> Result<(), Status> {
    if let Some(Request::Arbitration(update)) = &update {
        peer::check_role(peer, update.role.as_ref().map_or("", |role| &role.name))?;
        let was_primary = shared.clients.is_primary(id);
        if shared.clients.arbitrate(id, update)? {
            welcome(shared, id, was_primary).await;
        }
    } else if let Err((refusal, details)) = request(shared, id, update).await {
        let (canonical_code, message) = (refusal.code as i32, refusal.message);
        let error = p4::StreamError { canonical_code, message, details: Some(details), ..Default::default() };
        offer(queue, Response::Error(error));
    }
    Ok(())
}

/// A new primary starts when the writes of its predecessor have ended, and with digests that it has not seen.
async fn welcome(shared: &Shared, client: ClientId, was_primary: bool) {
    let state = shared.state.write().await;
    if !was_primary {
        shared.dataplane.write(shared.digests.acknowledge_all()).await;
    }
    shared.clients.welcome_primary(client);
    drop(state);
}

/// Handles a message other than arbitration.
async fn request(shared: &Shared, client: ClientId, update: Option<Request>) -> Result<(), (Refusal, Details)> {
    let is_primary = shared.clients.is_primary(client);
    let only_primary = |what: &str| match is_primary {
        true => Ok(()),
        false => refuse!(PermissionDenied, "only the primary may send {what}"),
    };
    match update {
        Some(Request::Packet(packet)) => {
            let sent = only_primary("packets").and_then(|()| packet_out(shared, &packet));
            sent.map_err(|refusal| (refusal, Details::PacketOut(p4::PacketOutError { packet_out: Some(packet) })))
        }
        Some(Request::DigestAck(ack)) => {
            let checked = only_primary("digest acknowledgements").and_then(|()| digest_ack(shared, ack));
            let updates = checked.map_err(|refusal| {
                (refusal, Details::DigestListAck(p4::DigestListAckError { digest_list_ack: Some(ack) }))
            })?;
            // After the pipeline that is being exchanged now, if one is.
            let _state = shared.state.read().await;
            shared.dataplane.write(updates).await;
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

fn packet_out(shared: &Shared, packet: &p4::PacketOut) -> Checked<()> {
    let pipeline = shared.pipeline()?;
    let frame = packet_io::packet_out(&pipeline.schema.packet_out, packet)?;
    Ok(shared.dataplane.inject(frame)?)
}

fn digest_ack(shared: &Shared, ack: p4::DigestListAck) -> Checked<Vec<Update>> {
    let pipeline = shared.pipeline()?;
    super::schema::known(&pipeline.schema.digests, "digest", ack.digest_id)?;
    Ok(shared.digests.acknowledge(ack.digest_id, ack.list_id))
}

/// Passes packets of the CPU port on to the primaries.
pub async fn deliver_packets(shared: Arc<Shared>, mut packets: mpsc::Receiver<PacketIn>) {
    while let Some(packet) = packets.recv().await {
        deliver_packet(&shared, packet);
    }
}

fn deliver_packet(shared: &Shared, packet: PacketIn) {
    if let Ok(pipeline) = shared.pipeline()
        && let Some(message) = packet_io::packet_in(&pipeline.schema.packet_in, packet.frame)
    {
        shared.clients.send_to_primaries(Response::Packet(message), |access, message| match message {
            Response::Packet(packet) => access.gets_packet(&packet.metadata),
            _ => false,
        });
    }
}

/// Collects digest samples into lists and passes these on to the primaries.
pub async fn deliver_digests(shared: Arc<Shared>, mut samples: mpsc::Receiver<Digest>) {
    loop {
        let deadline = shared.digests.deadline();
        let due = async {
            match deadline {
                Some(deadline) => tokio::time::sleep(deadline.saturating_sub(now(&shared))).await,
                None => std::future::pending().await,
            }
        };
        let lists = tokio::select! {
            sample = samples.recv() => match sample {
                Some(sample) => offer_sample(&shared, sample).into_iter().collect(),
                None => return,
            },
            () = due => shared.digests.poll(now(&shared)),
            () = shared.digests.changed.notified() => shared.digests.poll(now(&shared)),
        };
        for (id, list) in lists {
            send_list(&shared, id, list).await;
        }
    }
}

fn offer_sample(shared: &Shared, sample: Digest) -> Option<(u32, DigestList)> {
    let pipeline = shared.pipeline().ok()?;
    let (id, _) = pipeline.schema.digest_of(sample.digest)?;
    Some((id, shared.digests.lock().get_mut(&id)?.offer(sample, now(shared))?))
}

async fn send_list(shared: &Shared, digest_id: u32, list: DigestList) {
    let Ok(pipeline) = shared.pipeline() else { return };
    let Some(digest) = pipeline.schema.digests.get(&digest_id) else { return };
    let data = list.samples.iter().filter_map(|values| digest.data.encode(values)).collect();
    let message =
        p4::DigestList { digest_id, list_id: list.list_id, data, timestamp: shared.dataplane.clock().epoch() };
    if !shared.clients.send_to_primaries(Response::Digest(message), |access, _| access.has(digest_id)) {
        // Nobody got it, so nobody will acknowledge it.
        shared.dataplane.write(shared.digests.acknowledge(digest_id, list.list_id)).await;
    }
}

/// Passes idle entries on to the primaries, those that come together in one message.
pub async fn deliver_notices(shared: Arc<Shared>, mut notices: mpsc::Receiver<Notice>) {
    let mut waiting = Vec::with_capacity(MAX_IDLE_ENTRIES);
    while notices.recv_many(&mut waiting, MAX_IDLE_ENTRIES).await > 0 {
        deliver_idle(&shared, waiting.drain(..));
    }
}

fn deliver_idle(shared: &Shared, notices: impl IntoIterator<Item = Notice>) {
    let Ok(pipeline) = shared.pipeline() else { return };
    let idle = |notice| match notice {
        Notice::IdleTimeout(entry) => Some(entry),
        Notice::PortState { port, up } => {
            tracing::info!("port {port} is {}", if up { "up" } else { "down" });
            None
        }
    };
    let message = |entry: Box<TableEntry>| Some(entry::key_message(pipeline.schema.table_of(entry.table)?, &entry));
    let table_entry: Vec<p4::TableEntry> = notices.into_iter().filter_map(idle).filter_map(message).collect();
    if !table_entry.is_empty() {
        send_idle(shared, table_entry);
    }
}

/// Sends to each primary the idle entries that belong to its role.
fn send_idle(shared: &Shared, table_entry: Vec<p4::TableEntry>) {
    let send = |table_entry, is_for: &dyn Fn(&Access) -> bool| {
        let message = p4::IdleTimeoutNotification { table_entry, timestamp: shared.dataplane.clock().epoch() };
        shared.clients.send_to_primaries(Response::IdleTimeoutNotification(message), |access, _| is_for(access));
    };
    let mut by_table: BTreeMap<u32, Vec<p4::TableEntry>> = BTreeMap::new();
    if shared.clients.with_arbiter(|arbiter| arbiter.primaries().any(|(_, access)| !access.is_full())) {
        table_entry.iter().for_each(|entry| by_table.entry(entry.table_id).or_default().push(entry.clone()));
    }
    send(table_entry, &Access::is_full);
    for (id, table_entry) in by_table {
        send(table_entry, &|access| !access.is_full() && access.has(id));
    }
}

/// Since the start of the switch.
fn now(shared: &Shared) -> Duration {
    Duration::from_nanos(shared.dataplane.clock().now())
}

/// Delivers the data plane's events so far to the primaries, for a caller that sets the clock.
pub async fn deliver_now(shared: &Shared, events: &mut Events) {
    while let Ok(packet) = events.packet_ins.try_recv() {
        deliver_packet(shared, packet);
    }
    while let Ok(sample) = events.digests.try_recv() {
        if let Some((id, list)) = offer_sample(shared, sample) {
            send_list(shared, id, list).await;
        }
    }
    for (id, list) in shared.digests.poll(now(shared)) {
        send_list(shared, id, list).await;
    }
    while !events.notices.is_empty() {
        deliver_idle(shared, std::iter::from_fn(|| events.notices.try_recv().ok()).take(MAX_IDLE_ENTRIES));
    }
}
