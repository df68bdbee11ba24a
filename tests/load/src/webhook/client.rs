//! The load: the same request again and again, with little work, so that the measurement shows the webhook.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::client::TlsStream;

use super::server::{WebhookProcess, secret};

pub(super) struct WebhookLoad<'a> {
    webhook: &'a WebhookProcess,
    request: Vec<u8>,
    expect: ExpectedAnswer,
}

/// The expected answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum ExpectedAnswer {
    /// Allowed, with a patch.
    Patched,
    /// Allowed, without a patch.
    Allowed,
    /// Held, with the deletion request on the pod already.
    Held,
}

impl ExpectedAnswer {
    pub(super) fn is_met_by(self, body: &[u8]) -> bool {
        let (allowed, patched) = (contains(body, b"\"allowed\":true"), contains(body, b"\"patch\":"));
        match self {
            ExpectedAnswer::Patched => allowed && patched,
            ExpectedAnswer::Allowed => allowed && !patched,
            ExpectedAnswer::Held => {
                !allowed && contains(body, b"\"code\":429") && contains(body, b"deletion process is underway")
            }
        }
    }
}

pub(super) struct AnsweredRequests {
    pub(super) requests: usize,
    took: Duration,
}

impl AnsweredRequests {
    pub(super) fn per_second(&self) -> f64 {
        #[allow(clippy::cast_precision_loss)]
        let requests = self.requests as f64;
        requests / self.took.as_secs_f64()
    }
}

impl<'a> WebhookLoad<'a> {
    pub(super) fn new(
        webhook: &'a WebhookProcess,
        path: &str,
        review: Vec<u8>,
        expect: ExpectedAnswer,
    ) -> Self {
        let path = secret().path(path);
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nHost: webhook.podward-system.svc:443\r\nUser-Agent: kube-apiserver-admission\r\n\
             Content-Length: {}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n\
             Accept-Encoding: gzip\r\n\r\n",
            review.len()
        )
        .into_bytes();
        request.extend(review);
        Self { webhook, request, expect }
    }

    /// Sends one request on a new connection.
    pub(super) async fn once(&self) -> Result<()> {
        let stream = self.webhook.connect().await?;
        WebhookConnection { stream, load: self, buffer: vec![0; 16 * 1024] }.exchange().await
    }

    async fn connections(&self, count: usize) -> Result<Vec<WebhookConnection<'_>>> {
        try_join_all((0..count).map(|_| async {
            Ok(WebhookConnection {
                stream: self.webhook.connect().await?,
                load: self,
                buffer: vec![0; 16 * 1024],
            })
        }))
        .await
    }

    /// Sends requests for the time `each`. Each connection sends the next request when it has the answer to the last.
    pub(super) async fn saturate(&self, connections: usize, each: Duration) -> Result<AnsweredRequests> {
        let connections = self.connections(connections).await?;
        let start = Instant::now();
        let counts = try_join_all(connections.into_iter().map(|mut connection| async move {
            let mut requests = 0_usize;
            while start.elapsed() < each {
                connection.exchange().await?;
                requests += 1;
            }
            Ok::<_, anyhow::Error>(requests)
        }))
        .await?;
        Ok(AnsweredRequests { requests: counts.into_iter().sum(), took: start.elapsed() })
    }

    /// Sends requests at a steady rate, however slow the answers. Returns the times from when each was due to its
    /// answer.
    pub(super) async fn at_rate(
        &self,
        connections: usize,
        per_second: f64,
        each: Duration,
    ) -> Result<Vec<Duration>> {
        let spacing = Duration::from_secs_f64(1.0 / per_second);
        let start = Instant::now() + spacing;
        // Free connections wait for the next request one at a time, in turn.
        let next_due = Mutex::new(start);
        let latencies = RefCell::new(Vec::new());
        try_join_all(self.connections(connections).await?.into_iter().map(|mut connection| {
            let (next_due, latencies) = (&next_due, &latencies);
            async move {
                loop {
                    let due = {
                        let mut next = next_due.lock().await;
                        let due = *next;
                        if due >= start + each {
                            return Ok::<_, anyhow::Error>(());
                        }
                        *next += spacing;
                        // A timer would be a millisecond late. The CPU is reserved, so this spins.
                        while Instant::now() < due {
                            tokio::task::yield_now().await;
                        }
                        due
                    };
                    connection.exchange().await?;
                    latencies.borrow_mut().push(due.elapsed());
                }
            }
        }))
        .await?;
        Ok(latencies.into_inner())
    }
}

struct WebhookConnection<'a> {
    stream: TlsStream<TcpStream>,
    load: &'a WebhookLoad<'a>,
    buffer: Vec<u8>,
}

impl WebhookConnection<'_> {
    async fn exchange(&mut self) -> Result<()> {
        self.stream.write_all(&self.load.request).await.context("send a review")?;
        self.stream.flush().await.context("send a review")?;
        let mut filled = 0;
        loop {
            let read = self.stream.read(&mut self.buffer[filled..]).await.context("read an answer")?;
            ensure!(read > 0, "the webhook closed the connection");
            filled += read;
            if let Some(body) = whole_body(&self.buffer[..filled])? {
                let expect = self.load.expect;
                ensure!(expect.is_met_by(body), "not {expect:?}: {}", String::from_utf8_lossy(body));
                return Ok(());
            }
            ensure!(filled < self.buffer.len(), "an answer larger than {filled} bytes");
        }
    }
}

/// Returns the body of an HTTP/1.1 response, or `None` if it is incomplete.
fn whole_body(answer: &[u8]) -> Result<Option<&[u8]>> {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let (head, body) = (std::str::from_utf8(&answer[..end])?, &answer[end + 4..]);
    if !head.starts_with("HTTP/1.1 200 ") {
        bail!("the webhook answers {head:?} {}", String::from_utf8_lossy(body));
    }
    let length = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length: usize = length.context("an answer without a length")?.1.parse()?;
    Ok((body.len() >= length).then(|| &body[..length]))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whole() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(whole_body(answer).unwrap(), Some(b"abc".as_slice()));
        for cut in 0..answer.len() {
            assert_eq!(whole_body(&answer[..cut]).unwrap(), None);
        }
        assert!(whole_body(b"HTTP/1.1 400 Bad Request\r\n\r\n").is_err());
        assert!(contains(b"abc", b"bc") && !contains(b"abc", b"cb"));
    }
}
