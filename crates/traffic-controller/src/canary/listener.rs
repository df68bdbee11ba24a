//! The port behind the canary.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

/// The ports that the listeners use. The NetworkPolicy of the chart names them too. A port is used again when all others
/// were: with two writes in a second after more than an hour.
const FIRST_PORT: u16 = 20_000;
const LAST_PORT: u16 = 29_999;
/// How long a listener answers. Nodes that lag lead to it until they have received the next write.
const LISTEN_TIME: Duration = Duration::from_secs(60);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
const ANSWER_START: &str = "podward-canary ";

/// The next port.
pub(super) struct Ports(Mutex<u16>);

impl Ports {
    /// Begins with any port, so that a process does not use those of its predecessor.
    pub(super) fn new() -> Self {
        Self(Mutex::new(fastrand::u16(FIRST_PORT..=LAST_PORT)))
    }

    /// Listens on the next free port of all addresses of the family of `address`.
    ///
    /// # Errors
    /// Fails if there is no free port among the next ones.
    pub(super) async fn listen(&self, address: IpAddr) -> anyhow::Result<(TcpListener, u16)> {
        const ATTEMPTS: usize = 20;
        let all: IpAddr = match address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let mut result = None;
        for _ in 0..ATTEMPTS {
            let port = self.next();
            match TcpListener::bind(SocketAddr::new(all, port)).await {
                Ok(listener) => return Ok((listener, port)),
                Err(error) => result = Some(error),
            }
        }
        let error = result.unwrap_or_else(|| std::io::Error::other("no attempt"));
        Err(error).context("could not listen on a port for the canary")
    }

    fn next(&self) -> u16 {
        let mut next = self.0.lock();
        let port = *next;
        *next = if port >= LAST_PORT { FIRST_PORT } else { port + 1 };
        port
    }
}

/// Answers all connections to `listener` with `generation` for [`LISTEN_TIME`].
pub(super) async fn answer(listener: TcpListener, generation: u64) {
    let text = format!("{ANSWER_START}{generation}\n");
    let serve = async {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                tokio::time::sleep(ANSWER_TIMEOUT).await;
                continue;
            };
            // The text fits into the buffer of the socket.
            let _ = tokio::time::timeout(ANSWER_TIMEOUT, async {
                stream.write_all(text.as_bytes()).await?;
                stream.shutdown().await
            })
            .await;
        }
    };
    // It ends by the timeout.
    let _: Result<(), _> = tokio::time::timeout(LISTEN_TIME, serve).await;
}

/// Returns the generation in an answer.
pub(super) fn generation_of(answer: &str) -> Option<u64> {
    answer.strip_prefix(ANSWER_START)?.strip_suffix('\n')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn a_connection_is_answered_with_the_generation() {
        let ports = Ports::new();
        let (one, first) = ports.listen(Ipv4Addr::LOCALHOST.into()).await.unwrap();
        let (_two, second) = ports.listen(Ipv4Addr::LOCALHOST.into()).await.unwrap();
        assert_ne!(first, second);
        let task = tokio::spawn(answer(one, 42));
        for _ in 0..2 {
            let mut text = String::new();
            TcpStream::connect((Ipv4Addr::LOCALHOST, first))
                .await
                .unwrap()
                .read_to_string(&mut text)
                .await
                .unwrap();
            assert_eq!(generation_of(&text), Some(42));
        }
        task.abort();
        for bad in
            ["", "42\n", "podward-canary 42", "podward-canary x\n", "podward-canary -1\n", "HTTP/1.1 400\r\n"]
        {
            assert_eq!(generation_of(bad), None, "{bad}");
        }
    }
}
