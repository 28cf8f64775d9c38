// SPDX-License-Identifier: Apache-2.0
//! `StreamChannel`, and the tasks that bring what the data plane has to tell to the streams.

use std::sync::Arc;
use std::time::Duration;

use apswitch_dataplane::client_log;
use apswitch_dataplane::control::{Digest, Notice, PacketIn};
use apswitch_dataplane::peer::{self, Peer};
use apswitch_p4runtime::ClientId;
use apswitch_p4runtime::clients::{MAX_SILENCE, Opened, Outgoing};
use apswitch_p4runtime::error::{Code, Status};
use apswitch_p4runtime::proto::p4::v1 as p4;
use apswitch_p4runtime::proto::p4::v1::stream_message_request::Update as Request;
use apswitch_p4runtime::stream::{
    MAX_IDLE_ENTRIES, arbitrate, deliver_idle, deliver_packet, handle, now, offer_sample, send_list, welcome,
};
use async_channel::{Receiver, Sender};
use tokio::task::coop::cooperative;
use tonic::Streaming;

use super::message_size::too_long;
use super::shared::Shared;

/// Time that a stream which ends with an error waits for its client to take it.
const LAST_WORD: Duration = Duration::from_secs(5);

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
    let (mut is_silent, mut part) = (true, None);
    // Reason of the end, and the error that the client gets, if any.
    let (reason, last_word) = loop {
        let message = tokio::select! {
            () = &mut silence, if is_silent => {
                let reason = format!("no arbitration came within {} s", MAX_SILENCE.as_secs());
                break (reason.clone(), Some(Status::new(Code::DeadlineExceeded, reason)));
            }
            message = incoming.message() => message,
            _ = &mut stalled => break ("the client does not read its messages".into(), None),
            () = queue.closed() => break ("cancelled by the client, or its connection is gone".into(), None),
        };
        let update = match message {
            Ok(Some(message)) => message.update,
            Ok(None) => break ("closed by the client".into(), None),
            Err(status) => {
                let exhausted = status.code() == tonic::Code::ResourceExhausted || too_long(&status).is_some();
                let last_word = exhausted.then(|| Status::new(Code::ResourceExhausted, status.message()));
                break (status.message().to_owned(), last_word);
            }
        };
        is_silent &= !matches!(update, Some(Request::Arbitration(_)));
        let arbitrates = matches!(update, Some(Request::Arbitration(_)));
        if let Err(status) = take(&shared, id, &queue, peer.as_ref(), update).await {
            break (format!("{}: {}", status.code, status.message), Some(status));
        }
        let now = if arbitrates { shared.device.clients.describe(id) } else { part.clone() };
        if now != part {
            part = now;
            client_log::log(peer.as_ref(), format_args!("{}", part.as_deref().unwrap_or_default()));
        }
    };
    let part = shared.device.clients.describe(id).map(|part| format!(" as {part}")).unwrap_or_default();
    client_log::log(peer.as_ref(), format_args!("stream{part} ended: {reason}"));
    shared.device.clients.close(id);
    if let Some(status) = last_word {
        let _ = tokio::time::timeout(LAST_WORD, queue.send(Err(status))).await;
    }
}

/// Handles a message of a stream; an error ends it.
async fn take(
    shared: &Shared,
    id: ClientId,
    queue: &Sender<Outgoing>,
    peer: Option<&Peer>,
    update: Option<Request>,
) -> Result<(), Status> {
    match update {
        Some(Request::Arbitration(update)) => {
            let role = update.role.as_ref().map_or("", |role| &role.name);
            peer::check_role(peer, role).map_err(|reason| Status::new(Code::PermissionDenied, reason))?;
            if let Some(primary) = arbitrate(&shared.device, id, &update)? {
                let _state = shared.state.write().await;
                welcome(&shared.device, primary).await;
            }
        }
        Some(Request::DigestAck(_)) => {
            // After the pipeline that is being exchanged now, if one is.
            let _state = shared.state.read().await;
            handle(&shared.device, id, queue, update).await;
        }
        update => handle(&shared.device, id, queue, update).await,
    }
    Ok(())
}

/// Passes packets of the CPU port on to the primaries.
pub async fn deliver_packets(shared: Arc<Shared>, packets: Receiver<PacketIn>) {
    while let Ok(packet) = cooperative(packets.recv()).await {
        deliver_packet(&shared.device, packet);
    }
}

/// Collects digest samples into lists and passes these on to the primaries.
pub async fn deliver_digests(shared: Arc<Shared>, samples: Receiver<Digest>) {
    let device = &shared.device;
    loop {
        let deadline = device.digests.deadline();
        let due = async {
            match deadline {
                Some(deadline) => tokio::time::sleep(deadline.saturating_sub(now(device))).await,
                None => std::future::pending().await,
            }
        };
        let lists = tokio::select! {
            sample = cooperative(samples.recv()) => match sample {
                Ok(sample) => offer_sample(device, sample).into_iter().collect(),
                Err(_) => return,
            },
            () = due => device.digests.poll(now(device)),
            () = device.digests.changed() => device.digests.poll(now(device)),
        };
        for (id, list) in lists {
            send_list(device, id, list).await;
        }
    }
}

/// Passes idle entries on to the primaries, those that come together in one message.
pub async fn deliver_notices(shared: Arc<Shared>, notices: Receiver<Notice>) {
    while let Ok(notice) = cooperative(notices.recv()).await {
        let others = std::iter::from_fn(|| notices.try_recv().ok());
        deliver_idle(&shared.device, std::iter::once(notice).chain(others).take(MAX_IDLE_ENTRIES));
    }
}
