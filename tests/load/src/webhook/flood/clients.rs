//! The clients of the flood. They have a thread of their own, and connect again when they are closed.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use super::super::server::{WebhookTarget, secret};

/// Clients that connect at the same time.
const CONNECTING: usize = 32;
/// The time after which a client that was closed connects again.
const AGAIN: Duration = Duration::from_secs(10);
/// The time between two pieces that a slow client sends.
const PIECE: Duration = Duration::from_millis(200);
/// The time within which all clients must have been connected once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// The bodies that slow clients announce, which is the maximum that the webhook accepts.
const ANNOUNCED: usize = 6 << 20;

/// The addresses that the clients connect from.
#[derive(Clone, Copy, Debug)]
pub(super) enum FloodSource {
    OtherAddresses,
    SameAddress,
}

impl FloodSource {
    fn address(self, client: usize) -> Ipv4Addr {
        match self {
            FloodSource::SameAddress => Ipv4Addr::LOCALHOST,
            FloodSource::OtherAddresses => {
                Ipv4Addr::new(127, 0, 1, u8::try_from(client % 50).unwrap_or_default() + 1)
            }
        }
    }
}

/// What a client does.
#[derive(Clone, Copy, Debug)]
enum Conduct {
    /// Shakes hands and says nothing, in HTTP/1.1 or HTTP/2.
    Idle { h2: bool },
    /// Sends the first bytes of a handshake slowly.
    SlowHandshake,
    /// Sends a head slowly.
    SlowHead { h2: bool },
    /// Announces a large body and sends it slowly, to a path that is right or wrong.
    SlowBody { right: bool },
}

impl Conduct {
    fn slow(client: usize) -> Self {
        match client % 5 {
            0 => Conduct::SlowHandshake,
            1 => Conduct::SlowHead { h2: false },
            2 => Conduct::SlowHead { h2: true },
            3 => Conduct::SlowBody { right: false },
            _ => Conduct::SlowBody { right: true },
        }
    }
}

pub(super) struct Flood {
    shared: Arc<FloodState>,
    clients: usize,
    thread: JoinHandle<Result<()>>,
}

struct FloodState {
    target: WebhookTarget,
    source: FloodSource,
    connecting: Semaphore,
    connected_once: AtomicUsize,
    handshakes: AtomicUsize,
    stop: tokio::sync::Notify,
}

impl Flood {
    pub(super) fn start(
        target: WebhookTarget,
        source: FloodSource,
        idle: usize,
        slow: usize,
    ) -> Result<Self> {
        let shared = Arc::new(FloodState {
            target,
            source,
            connecting: Semaphore::new(CONNECTING),
            connected_once: AtomicUsize::new(0),
            handshakes: AtomicUsize::new(0),
            stop: tokio::sync::Notify::new(),
        });
        let state = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("flood".to_owned()).spawn(move || {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
                let stopped = state.stop.notified();
                let mut clients = tokio::task::JoinSet::new();
                for client in 0..idle + slow {
                    let conduct = match client.checked_sub(idle) {
                        Some(slow) => Conduct::slow(slow),
                        None => Conduct::Idle { h2: client % 2 == 0 },
                    };
                    clients.spawn(Arc::clone(&state).run(client, conduct));
                }
                stopped.await;
            });
            Ok(())
        });
        Ok(Self { shared, clients: idle + slow, thread: thread.context("start the thread of the clients")? })
    }

    /// Waits until each client has been connected once.
    pub(super) async fn until_connected(&self) -> Result<()> {
        let end = Instant::now() + CONNECT_TIMEOUT;
        loop {
            let connected = self.shared.connected_once.load(Ordering::Relaxed);
            if connected == self.clients {
                return Ok(());
            }
            ensure!(Instant::now() < end, "only {connected} of {} clients could connect", self.clients);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) fn handshakes(&self) -> usize {
        self.shared.handshakes.load(Ordering::Relaxed)
    }

    pub(super) async fn stop(self) -> Result<()> {
        self.shared.stop.notify_one();
        let joined = tokio::task::spawn_blocking(move || self.thread.join()).await?;
        joined.map_err(|_| anyhow!("the clients panicked"))?
    }
}

impl FloodState {
    async fn run(self: Arc<Self>, client: usize, conduct: Conduct) {
        let mut first = true;
        loop {
            // It ends when the webhook closes the connection.
            let _ = self.live_once(client, conduct, &mut first).await;
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn live_once(&self, client: usize, conduct: Conduct, first: &mut bool) -> Result<()> {
        let turn = self.connecting.acquire().await?;
        let socket = TcpSocket::new_v4()?;
        socket.bind((self.source.address(client), 0).into())?;
        let mut socket = socket.connect(self.target.address()).await?;
        if let Conduct::SlowHandshake = conduct {
            drop(turn);
            self.note_connected(first);
            // The head of a TLS record of 512 bytes.
            socket.write_all(&[22, 3, 1, 2, 0]).await?;
            return drip(&mut socket, &[0]).await;
        }
        let is_h2 = matches!(conduct, Conduct::Idle { h2: true } | Conduct::SlowHead { h2: true });
        let stream = self.target.handshake(socket, if is_h2 { "h2" } else { "http/1.1" }).await;
        drop(turn);
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        self.note_connected(first);
        self.hold(stream?, conduct).await
    }

    fn note_connected(&self, first: &mut bool) {
        if std::mem::take(first) {
            self.connected_once.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn hold(&self, mut stream: TlsStream<TcpStream>, conduct: Conduct) -> Result<()> {
        match conduct {
            Conduct::SlowHead { h2: true } => {
                // The preface, empty SETTINGS, HEADERS without END_HEADERS, then empty CONTINUATION frames.
                stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
                stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await?;
                stream.write_all(&[0, 0, 1, 1, 0, 0, 0, 0, 1, 0x83]).await?;
                drip(&mut stream, &[0, 0, 1, 9, 0, 0, 0, 0, 1, 0x84]).await
            }
            Conduct::SlowHead { h2: false } => {
                stream.write_all(b"POST /guessed HTTP/1.1\r\nhost: webhook\r\nx-slow: ").await?;
                drip(&mut stream, b"a").await
            }
            Conduct::SlowBody { right } => {
                let path = if right { secret().path("/mutate") } else { "/guessed".to_owned() };
                let head = format!(
                    "POST {path} HTTP/1.1\r\nhost: webhook\r\ncontent-type: application/json\r\ncontent-length: {ANNOUNCED}\r\n\r\n"
                );
                stream.write_all(head.as_bytes()).await?;
                drip(&mut stream, b"{").await
            }
            Conduct::Idle { .. } | Conduct::SlowHandshake => {
                let mut buffer = [0; 256];
                while stream.read(&mut buffer).await? > 0 {}
                Ok(())
            }
        }
    }
}

/// Sends `piece` again and again, until the webhook closes the connection.
async fn drip(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin), piece: &[u8]) -> Result<()> {
    let mut buffer = [0; 256];
    loop {
        stream.write_all(piece).await?;
        stream.flush().await?;
        let read = tokio::time::timeout(PIECE, stream.read(&mut buffer)).await;
        if let Ok(read) = read
            && read? == 0
        {
            return Ok(());
        }
    }
}
