//! Counts the requests in flight of a connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::Service;
use hyper::{Request, Response};

use crate::connections::{ConnectionProof, RequestOnConnection};

/// A service whose requests count as requests in flight of one connection, until their answers are sent or dropped.
pub(super) struct CountedService<S> {
    pub(super) service: S,
    pub(super) proof: ConnectionProof,
}

impl<S, B> Service<Request<Incoming>> for CountedService<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<CountedBody<B>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let in_flight = self.proof.begin();
        request.extensions_mut().insert(self.proof.clone());
        let answer = self.service.call(request);
        Box::pin(async move {
            let response = answer.await?;
            Ok(response.map(|body| CountedBody { body, _in_flight: in_flight }))
        })
    }
}

/// The body of an answer, whose request is in flight as long as it exists.
pub(super) struct CountedBody<B> {
    body: B,
    _in_flight: RequestOnConnection,
}

impl<B: Body + Unpin> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
