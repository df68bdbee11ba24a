//! The Service of the replicas, without a cluster: it says to which replica a new connection goes.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::webhook::server::WebhookProcess;

/// The shutdown of a replica, as the chart sets it by default.
const DRAIN: [&str; 2] = ["--drain-delay=5", "--drain-timeout=10"];
/// The time until kube-proxy knows that an endpoint is not ready. With SIGTERM it begins with the signal: the pod is
/// deleted, and its endpoint is not ready from then on.
const PROPAGATION: Duration = Duration::from_millis(500);
/// The time until the kubelet sees that a container has ended by itself. It looks once a second.
const NOTICED: Duration = Duration::from_secs(1);

/// Two replicas of a webhook, of which the first may end.
pub(super) struct WebhookService {
    replicas: [WebhookProcess; 2],
    /// True until kube-proxy knows that the first replica is not ready.
    first_is_endpoint: Cell<bool>,
    connections: Cell<usize>,
}

impl WebhookService {
    /// Starts both replicas of `program` on `cpu`.
    pub(super) async fn start(program: &Path, cpu: usize) -> Result<WebhookService> {
        let start = || WebhookProcess::start_with(program, cpu, &DRAIN);
        Ok(WebhookService {
            replicas: [start().await?, start().await?],
            first_is_endpoint: Cell::new(true),
            connections: Cell::new(0),
        })
    }

    /// Connects to the endpoints in turn. kube-proxy picks one at random, which is the same on average.
    pub(super) async fn connect(&self) -> Result<TlsStream<TcpStream>> {
        let number = self.connections.replace(self.connections.get() + 1);
        let [first, second] = &self.replicas;
        let replica = if self.first_is_endpoint.get() && number.is_multiple_of(2) { first } else { second };
        replica.connect().await
    }

    /// Returns how often [`connect`](Self::connect) was called.
    pub(super) fn connections(&self) -> usize {
        self.connections.get()
    }

    /// Sends `signal` to the first replica, and ends its endpoint when kube-proxy would.
    ///
    /// # Errors
    /// Fails if the replica has ended before.
    pub(super) async fn end_one(&self, signal: Signal) -> Result<()> {
        let [first, _] = &self.replicas;
        first.signal(signal)?;
        let noticed = if signal == Signal::SIGKILL { NOTICED } else { Duration::ZERO };
        tokio::time::sleep(noticed + PROPAGATION).await;
        self.first_is_endpoint.set(false);
        Ok(())
    }

    /// Ends both replicas. The first has got `signal`.
    ///
    /// # Errors
    /// Fails if the first replica got SIGTERM and does not end, or ends with an error.
    pub(super) async fn stop(self, signal: Option<Signal>) -> Result<()> {
        let [first, _] = self.replicas;
        match signal {
            Some(Signal::SIGTERM) => first.ended().await.context("end the replica that got SIGTERM"),
            _ => Ok(()),
        }
    }
}
