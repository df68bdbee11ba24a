//! Runs the requests of HTTP/2 connections.

use hyper::rt::Executor;

use crate::connections::{ConnectionProof, SentAnswer};

/// Runs each request of a connection in a task of its own, and ends those whose answers wait too long for their client.
/// hyper resets the stream of a request that ends so. Other requests of the connection continue.
#[derive(Clone)]
pub(super) struct RequestExecutor {
    pub(super) proof: ConnectionProof,
}

impl<F> Executor<F> for RequestExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, request: F) {
        let answer = SentAnswer::new(self.proof.clone());
        tokio::spawn(async move {
            if answer.within_limits(request).await.is_none() {
                tracing::debug!("a request was ended, because its client did not read the answer");
            }
        });
    }
}
