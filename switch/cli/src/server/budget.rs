// SPDX-License-Identifier: Apache-2.0
//! Memory that requests and answers take while they are under way: counted as they come, and given back when they
//! have gone.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use apswitch_dataplane::peer::Peer;
use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tower_layer::Layer;

use super::fast_path::Answering;
use super::fields::Fields;

/// Bytes of all requests that are under way, and of those of one connection.
const MAX_TOTAL_BYTES: usize = 160 << 20;
const MAX_CONNECTION_BYTES: usize = 104 << 20;
/// Bytes that a field of a message takes at least once it is decoded, in a vector that may have twice the room.
const FIELD: usize = 2 * size_of::<Bytes>();
/// The first bytes of each request are not counted: there is always room for the small ones.
const FREE: usize = 16 << 10;
/// The longest requests: batches of updates and pipeline configs; queries; messages of streams and what gNMI sets;
/// paths; and those that have nothing to say.
const MAX_UPDATE_BYTES: usize = apswitch_p4runtime::MAX_REQUEST_BYTES;
const MAX_QUERY_BYTES: usize = 4 << 20;
const MAX_STREAM_MESSAGE_BYTES: usize = 1 << 20;
const MAX_PATHS_BYTES: usize = 256 << 10;
const MAX_OTHER_BYTES: usize = 64 << 10;
/// Bytes before a message: whether it is compressed, and its length in four bytes.
const PREFIX: usize = 5;
/// Bytes of an answer that are handed on at a time.
const PIECE: usize = 64 << 10;

/// Permit that an answer keeps until it has been sent, as one of its response's extensions.
pub type Held = Arc<OwnedSemaphorePermit>;

/// The longest message of a method, and whether it takes many.
fn messages(path: &str) -> (usize, bool) {
    match path.rsplit('/').next().unwrap_or_default() {
        "Write" | "SetForwardingPipelineConfig" => (MAX_UPDATE_BYTES, false),
        "Read" => (MAX_QUERY_BYTES, false),
        "Set" => (MAX_STREAM_MESSAGE_BYTES, false),
        "StreamChannel" | "Subscribe" => (MAX_STREAM_MESSAGE_BYTES, true),
        "Get" => (MAX_PATHS_BYTES, false),
        "ServerReflectionInfo" => (MAX_OTHER_BYTES, true),
        _ => (MAX_OTHER_BYTES, false),
    }
}

/// Part of both budgets that a request holds, as one of its extensions: who works for it after its client has gone keeps
/// this meanwhile.
#[derive(Clone)]
pub struct UnderWay {
    _share: Arc<Share>,
}

/// Share of both budgets that a request holds.
struct Share {
    all: Arc<AtomicUsize>,
    own: Arc<AtomicUsize>,
    held: AtomicUsize,
}

impl Share {
    /// Makes it what so many bytes take.
    fn hold(&self, bytes: usize) -> Result<(), Status> {
        let (wanted, held) = (bytes.saturating_sub(FREE), self.held.load(Relaxed));
        if wanted <= held {
            self.give(held - wanted);
            return Ok(());
        }
        let more = wanted - held;
        let own = self.own.fetch_add(more, Relaxed) + more;
        let all = self.all.fetch_add(more, Relaxed) + more;
        self.held.store(wanted, Relaxed);
        for (now, most, whose) in
            [(own, MAX_CONNECTION_BYTES, "of this connection"), (all, MAX_TOTAL_BYTES, "of all connections")]
        {
            if now > most {
                self.give(more);
                let most = most >> 20;
                return Err(Status::resource_exhausted(format!(
                    "the requests {whose} have {most} MiB: try again later"
                )));
            }
        }
        Ok(())
    }

    fn give(&self, bytes: usize) {
        if bytes > 0 {
            self.own.fetch_sub(bytes, Relaxed);
            self.all.fetch_sub(bytes, Relaxed);
            self.held.fetch_sub(bytes, Relaxed);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give(self.held.load(Relaxed));
    }
}

/// A request as it comes.
struct Incoming {
    body: Body,
    share: Arc<Share>,
    longest: usize,
    is_stream: bool,
    /// The prefix of the message that is coming, as far as it has come, and the bytes of it that have not.
    prefix: Vec<u8>,
    rest: usize,
    fields: Fields,
    /// Bytes that it and those before it take, which have come since the client was last waited for.
    taken: usize,
    /// Bytes of complete messages among them.
    complete: usize,
}

impl Incoming {
    fn count(&mut self, mut data: &[u8]) -> Result<(), Status> {
        while !data.is_empty() {
            if self.rest == 0 {
                let number = data.len().min(PREFIX - self.prefix.len());
                self.prefix.extend_from_slice(&data[..number]);
                self.taken += number;
                data = &data[number..];
                let &[_, a, b, c, d] = &self.prefix[..] else { break };
                self.rest = u32::from_be_bytes([a, b, c, d]) as usize;
                if self.rest > self.longest {
                    let (length, most) = (self.rest, self.longest);
                    return Err(Status::resource_exhausted(format!(
                        "a message of {length} bytes: {most} are the most"
                    )));
                }
                self.fields = Fields::default();
            }
            let number = data.len().min(self.rest);
            self.rest -= number;
            self.taken += number + FIELD * self.fields.count(&data[..number]);
            data = &data[number..];
            if self.rest == 0 && self.prefix.len() == PREFIX {
                self.prefix.clear();
                self.complete = self.taken;
            }
        }
        self.share.hold(self.taken)
    }
}

impl http_body::Body for Incoming {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.is_stream && self.complete > 0 {
            // A server that asks for more of a stream has done with what came before.
            self.taken -= std::mem::take(&mut self.complete);
            self.share.hold(self.taken)?;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.count(data)?;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer that leaves piece by piece: what HTTP/2 buffers for a client that takes nothing is a piece, not all of it.
struct Outgoing {
    body: Body,
    rest: Bytes,
    _held: Option<Held>,
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.len() > PIECE => self.rest = data,
                    Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                other => return Poll::Ready(other),
            }
        }
        let number = self.rest.remaining().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(number)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The layer around all services.
#[derive(Clone)]
pub struct Bounded<L> {
    layer: L,
    all: Arc<AtomicUsize>,
}

impl<L> Bounded<L> {
    pub fn new(layer: L) -> Bounded<L> {
        Bounded { layer, all: Arc::default() }
    }
}

impl<L: Layer<R>, R> Layer<R> for Bounded<L> {
    type Service = BoundedService<L::Service>;

    fn layer(&self, others: R) -> Self::Service {
        BoundedService { service: self.layer.layer(others), all: self.all.clone() }
    }
}

#[derive(Clone)]
pub struct BoundedService<S> {
    service: S,
    all: Arc<AtomicUsize>,
}

impl<S> Service<http::Request<Body>> for BoundedService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible, Future = Answering>,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Answering {
        let own = request.extensions().get::<Peer>().map(|peer| peer.under_way.clone()).unwrap_or_default();
        let share = Arc::new(Share { all: self.all.clone(), own, held: AtomicUsize::new(0) });
        let (longest, is_stream) = messages(request.uri().path());
        let of_request = share.clone();
        let mut request = request.map(|body| {
            let (prefix, rest, taken, complete) = (Vec::with_capacity(PREFIX), 0, 0, 0);
            Body::new(Incoming {
                body,
                share: of_request,
                longest,
                is_stream,
                prefix,
                rest,
                fields: Fields::default(),
                taken,
                complete,
            })
        });
        if !is_stream {
            request.extensions_mut().insert(UnderWay { _share: share.clone() });
        }
        let answer = self.service.call(request);
        Box::pin(async move {
            let mut answer = answer.await?;
            // A request is held until it is answered; what a stream has said, as long as it takes to say it.
            drop(share);
            let held = answer.extensions_mut().remove::<Held>();
            Ok(answer.map(|body| Body::new(Outgoing { body, rest: Bytes::new(), _held: held })))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incoming(all: &Arc<AtomicUsize>, is_stream: bool) -> Incoming {
        let share = Arc::new(Share { all: all.clone(), own: Arc::default(), held: AtomicUsize::new(0) });
        let (body, prefix) = (Body::empty(), Vec::new());
        let fields = Fields::default();
        Incoming { body, share, longest: MAX_UPDATE_BYTES, is_stream, prefix, rest: 0, fields, taken: 0, complete: 0 }
    }

    fn message(length: usize) -> Vec<u8> {
        [&[0][..], &(length as u32).to_be_bytes(), &vec![0xFF; length]].concat()
    }

    #[test]
    fn fields_count_as_what_they_take_when_they_are_decoded() {
        let all = Arc::new(AtomicUsize::new(0));
        let updates = [&[0, 0, 16, 0, 0][..], &[0x22, 0].repeat(1 << 19)].concat();
        let mut first = incoming(&all, false);
        first.count(&updates).unwrap();
        assert_eq!(all.load(Relaxed), updates.len() + (FIELD << 19) - FREE);
        let many = [&[0, 1, 0, 0, 0][..], &[0x22, 0].repeat(1 << 23)].concat();
        let error = incoming(&all, false).count(&many).unwrap_err();
        assert!(error.message().contains("104 MiB"), "{error}");
    }

    #[test]
    fn what_is_complete_is_known_however_it_comes() {
        let bytes = [message(3), message(0), message(100_000), message(9)].concat();
        for size in [1, 4, 7, 1000, bytes.len()] {
            let mut whole = incoming(&Arc::default(), true);
            for part in bytes[..bytes.len() - 1].chunks(size) {
                whole.count(part).unwrap();
            }
            assert_eq!((whole.complete, whole.taken), (bytes.len() - PREFIX - 9, bytes.len() - 1), "{size}");
            whole.count(&bytes[bytes.len() - 1..]).unwrap();
            assert_eq!(whole.complete, bytes.len());
        }
    }

    #[test]
    fn all_requests_have_one_budget_and_small_ones_need_none() {
        let all = Arc::new(AtomicUsize::new(0));
        let (mut first, mut second, mut small) = (incoming(&all, false), incoming(&all, false), incoming(&all, false));
        first.count(&message(MAX_UPDATE_BYTES)).unwrap();
        second.count(&message(60 << 20)).unwrap();
        let error = incoming(&all, false).count(&message(40 << 20)).unwrap_err();
        assert_eq!(error.code(), tonic::Code::ResourceExhausted);
        small.count(&message(FREE - PREFIX)).unwrap();
        drop(first);
        incoming(&all, false).count(&message(40 << 20)).unwrap();
        drop(second);
        assert_eq!(all.load(Relaxed), 0);
    }

    #[test]
    fn a_length_is_refused_before_the_message_comes() {
        let error = incoming(&Arc::default(), false).count(&[0, 5, 0, 0, 0]).unwrap_err();
        assert!(error.message().contains("83886080 bytes"), "{error}");
    }
}
