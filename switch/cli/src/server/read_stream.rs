// SPDX-License-Identifier: Apache-2.0
//! The messages of a `Read`, as fast as the client takes them. Long answers are made on threads of their own.

use std::pin::Pin;
use std::time::Duration;

use apswitch_p4runtime::error::Status;
use apswitch_p4runtime::proto::p4::v1::ReadResponse;
use apswitch_p4runtime::read_stream::{Messages, ReadPermit};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::shared::grpc_status;

pub type ReadStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<ReadResponse, tonic::Status>> + Send>>;

/// A read whose client takes nothing for so long ends.
const STALL: Duration = Duration::from_secs(10);

/// An answer of one message at most.
pub fn short(message: Option<Result<ReadResponse, Status>>) -> ReadStream {
    Box::pin(tokio_stream::iter(message.map(|message| message.map_err(grpc_status))))
}

/// Long answers: made on a thread of their own, message by message, as the client takes them.
pub fn long(permit: ReadPermit, messages: impl FnOnce() -> Result<Messages, Status> + Send + 'static) -> ReadStream {
    let (queue, outgoing) = mpsc::channel(1);
    let runtime = Handle::current();
    let send = move |message: Result<ReadResponse, Status>| {
        let sent = runtime.block_on(tokio::time::timeout(STALL, queue.send(message.map_err(grpc_status))));
        matches!(sent, Ok(Ok(())))
    };
    tokio::task::spawn_blocking(move || {
        // Kept until all of it is made.
        let _permit = permit;
        match messages() {
            Ok(mut messages) => while messages.next().is_some_and(&send) {},
            Err(status) => drop(send(Err(status))),
        }
    });
    Box::pin(ReceiverStream::new(outgoing))
}
