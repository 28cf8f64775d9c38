// SPDX-License-Identifier: Apache-2.0
//! P4Runtime's requests come a hundred times a second from every controller. tonic's router, which would find their
//! service among others, costs as much as the reading of a counter for each of them: they pass it by.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tower_layer::Layer;

type Answer = Result<http::Response<Body>, Infallible>;
pub type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// The layer that takes the requests of this service from those of the others.
#[derive(Clone)]
pub struct First<S>(pub S);

impl<S: Clone, R> Layer<R> for First<S> {
    type Service = Split<S, R>;

    fn layer(&self, others: R) -> Split<S, R> {
        Split { first: self.0.clone(), others }
    }
}

#[derive(Clone)]
pub struct Split<S, R> {
    first: S,
    others: R,
}

impl<S, R> Service<http::Request<Body>> for Split<S, R>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible, Future = Answering>,
    S: NamedService,
    R: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    R::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        match self.first.poll_ready(context) {
            Poll::Ready(Ok(())) => self.others.poll_ready(context),
            waiting => waiting,
        }
    }

    fn call(&mut self, request: http::Request<Body>) -> Answering {
        let mut path = request.uri().path().split('/').skip(1);
        match path.next() {
            Some(service) if service == S::NAME => self.first.call(request),
            _ => Box::pin(self.others.call(request)),
        }
    }
}
