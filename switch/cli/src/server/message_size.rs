// SPDX-License-Identifier: Apache-2.0
//! A request longer than the server takes is `RESOURCE_EXHAUSTED`, as everywhere in gRPC; tonic says `OUT_OF_RANGE`.

use std::convert::Infallible;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};

use super::fast_path::Answering;

/// Beginning of tonic's text for such a request.
const TOO_LONG: &str = "Error, decoded message length too large";

/// The status in the place of one that says that a message is too long.
pub fn too_long(status: &Status) -> Option<Status> {
    let is_it = status.code() == Code::OutOfRange && status.message().starts_with(TOO_LONG);
    is_it.then(|| Status::resource_exhausted(status.message().to_owned()))
}

/// A service whose answers are looked at.
#[derive(Clone)]
pub struct LongMessages<S>(pub S);

impl<S: NamedService> NamedService for LongMessages<S> {
    const NAME: &'static str = S::NAME;
}

type Answer = http::Response<Body>;

impl<S> Service<http::Request<Body>> for LongMessages<S>
where
    S: Service<http::Request<Body>, Response = Answer, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Answering {
        let answer = self.0.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            Ok(match Status::from_header_map(answer.headers()).as_ref().and_then(too_long) {
                Some(status) => status.into_http(),
                None => answer,
            })
        })
    }
}
