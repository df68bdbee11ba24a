//! The process of the webhook.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podward_core::webhook_path::PathSecret;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::cluster;

const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of watches of each webhook.
const WATCHES: usize = 2;

/// The unit of times in `/proc/<pid>/stat`. It is a hundredth of a second on all usual kernels, whatever their clock
/// rate.
const TICK: Duration = Duration::from_millis(10);

pub(super) struct WebhookProcess {
    process: Child,
    address: SocketAddr,
    tls: TlsConnector,
    /// The folder with certificate, key and log.
    _dir: TempDir,
}

/// The CPU time of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuTime {
    pub(super) user: Duration,
    pub(super) system: Duration,
}

impl std::ops::Sub for CpuTime {
    type Output = CpuTime;

    fn sub(self, before: CpuTime) -> CpuTime {
        CpuTime {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
        }
    }
}

/// Returns the secret in the paths of the webhook.
pub(super) fn secret() -> PathSecret {
    PathSecret::of_random([7; 32])
}

pub(super) struct MemoryUse {
    pub(super) now_mib: f64,
    pub(super) peak_mib: f64,
}

/// Where the webhook listens, and its certificate.
#[derive(Clone)]
pub(super) struct WebhookTarget {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
}

impl WebhookTarget {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Shakes hands on `socket`, for `protocol`.
    pub(super) async fn handshake(&self, socket: TcpStream, protocol: &str) -> Result<TlsStream<TcpStream>> {
        let mut tls = (*self.tls).clone();
        tls.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let handshake = TlsConnector::from(Arc::new(tls)).connect("localhost".try_into()?, socket);
        handshake.await.context("talk TLS to the webhook")
    }
}

impl WebhookProcess {
    pub(super) fn target(&self) -> WebhookTarget {
        WebhookTarget { address: self.address, tls: Arc::clone(self.tls.config()) }
    }

    /// Starts `program` bound to `cpu`, with a cluster to watch, and waits until it listens and its watches have
    /// their lists.
    pub(super) async fn start(program: &Path, cpu: usize) -> Result<Self> {
        Self::start_with(program, cpu, &[]).await
    }

    /// As [`start`](Self::start), with further arguments.
    pub(super) async fn start_with(program: &Path, cpu: usize, more: &[&str]) -> Result<Self> {
        ensure!(
            program.exists(),
            "no program at {}; build it with cargo build --profile bench-lite",
            program.display()
        );
        let dir = tempfile::tempdir().context("make a directory for the webhook's certificate")?;
        let made =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).context("make a certificate")?;
        let (cert, key, log) =
            (dir.path().join("tls.crt"), dir.path().join("tls.key"), dir.path().join("log"));
        let path = dir.path().join("path");
        fs::write(&path, secret().reveal()).context("write the secret of the paths")?;
        fs::write(&cert, made.cert.pem()).context("write the certificate")?;
        fs::write(&key, made.signing_key.serialize_pem()).context("write the key")?;
        let kubeconfig = dir.path().join("kubeconfig");
        cluster::serve(&kubeconfig).await?;
        let process = Command::new("taskset")
            .args(["--cpu-list", &cpu.to_string()])
            .arg(program)
            .args(["--bind=127.0.0.1:0", "--admin-bind=127.0.0.1:0", "--tls-cert"])
            .arg(&cert)
            .arg("--tls-key")
            .arg(&key)
            .arg("--webhook-path-file")
            .arg(&path)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).context("make the webhook's log")?)
            .kill_on_drop(true)
            .spawn()
            .context("run taskset (of util-linux) with the webhook")?;
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone())?;
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let address = listening(&log).await?;
        Ok(Self { process, address, tls: TlsConnector::from(Arc::new(config)), _dir: dir })
    }

    pub(super) async fn connect(&self) -> Result<TlsStream<TcpStream>> {
        let socket = TcpStream::connect(self.address).await.context("connect to the webhook")?;
        socket.set_nodelay(true)?;
        self.tls.connect("localhost".try_into()?, socket).await.context("talk TLS to the webhook")
    }

    pub(super) fn cpu(&self) -> Result<CpuTime> {
        let stat = self.proc("stat")?;
        // The second field is the program's name in brackets, which can contain anything; see proc_pid_stat(5).
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| -> Result<Duration> {
            let ticks: u32 = fields.get(at).context("the stat of the webhook is short")?.parse()?;
            Ok(TICK * ticks)
        };
        Ok(CpuTime { user: ticks(11)?, system: ticks(12)? })
    }

    pub(super) fn memory(&self) -> Result<MemoryUse> {
        let status = self.proc("status")?;
        let mib = |key: &str| -> Result<f64> {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(key))
                .with_context(|| format!("no {key}"))?;
            let kib: u32 = line.trim().trim_end_matches(" kB").parse()?;
            Ok(f64::from(kib) / 1024.0)
        };
        Ok(MemoryUse { now_mib: mib("VmRSS:")?, peak_mib: mib("VmHWM:")? })
    }

    fn proc(&self, file: &str) -> Result<String> {
        let pid = self.process.id().context("the webhook has ended")?;
        let path = format!("/proc/{pid}/{file}");
        fs::read_to_string(&path).with_context(|| format!("read {path}"))
    }

    /// Sends `signal` to the process.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.process.id().context("the webhook has ended by itself")?)?;
        kill(Pid::from_raw(pid), signal).with_context(|| format!("send {signal} to the webhook"))
    }

    pub(super) async fn stop(self) -> Result<()> {
        self.signal(Signal::SIGTERM)?;
        self.ended().await
    }

    /// Waits until the process has ended after SIGTERM.
    ///
    /// # Errors
    /// Fails if it takes too long, or has ended with an error.
    pub(super) async fn ended(mut self) -> Result<()> {
        let ended = tokio::time::timeout(STOP_TIMEOUT, self.process.wait())
            .await
            .context("the webhook doesn't stop")??;
        ensure!(ended.success(), "the webhook ended with {ended}");
        Ok(())
    }
}

/// Waits until the log contains the webhook's address and the lists of both watches, and returns the address.
async fn listening(log: &Path) -> Result<SocketAddr> {
    let end = Instant::now() + STOP_TIMEOUT;
    loop {
        let text = fs::read_to_string(log).context("read the webhook's log")?;
        let events: Vec<Value> =
            text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).collect();
        let said = |words: &'static str| events.iter().filter(move |event| event["message"] == words);
        if said("listed").count() == WATCHES
            && let Some(event) = said("listening").next()
        {
            return event["tls"]
                .as_str()
                .context("no address in the log")?
                .parse()
                .context("the address in the log");
        }
        if Instant::now() > end {
            bail!("the webhook isn't ready after {STOP_TIMEOUT:?}; its log says:\n{text}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
