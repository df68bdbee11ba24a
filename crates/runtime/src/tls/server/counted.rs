//! Counts the requests in flight of a connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Buf, Frame, Incoming, SizeHint};
use hyper::service::Service;
use hyper::{Request, Response};

use crate::connections::{ConnectionProof, RequestOnConnection, SentAnswer};

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
        let mut in_flight = self.proof.begin();
        request.extensions_mut().insert(self.proof.clone());
        let answer = self.service.call(request);
        Box::pin(async move {
            let sending = SentAnswer::current();
            if let Some(sending) = &sending {
                sending.begin();
            }
            let response = answer.await?;
            in_flight.answered();
            Ok(response.map(|body| CountedBody { body, sending, _in_flight: in_flight }))
        })
    }
}

/// The body of an answer, whose request is in flight as long as it exists.
pub(super) struct CountedBody<B> {
    body: B,
    sending: Option<SentAnswer>,
    _in_flight: RequestOnConnection,
}

impl<B: Body + Unpin> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let Self { body, sending, .. } = &mut *self;
        if let Some(sending) = sending {
            sending.part_sent();
        }
        let polled = Pin::new(body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && frame.data_ref().is_some_and(Buf::has_remaining)
            && let Some(sending) = sending
        {
            sending.part_taken();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for CountedBody<B> {
    fn drop(&mut self) {
        if let Some(sending) = &self.sending {
            sending.part_sent();
        }
    }
}
