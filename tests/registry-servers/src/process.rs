//! A process that ends with the test.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podward_testbed::{Part, Tools};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// The time for a server to become ready. They need a few seconds on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// The pause between two looks whether it is ready.
const PAUSE: Duration = Duration::from_millis(50);
/// The number of lines of a log in an error.
const LOG_LINES: usize = 20;
/// The longest time until a process that got SIGSTOP has stopped.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

/// A server's process. It is killed when this is dropped, and when the test's process ends.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl ServerProcess {
    /// Starts `program`, with its log in `dir`.
    pub(crate) fn start(name: &'static str, program: &Path, args: &[String], dir: &Path) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let output = std::fs::OpenOptions::new().create(true).append(true).open(&log);
        let output = output.with_context(|| format!("write {}", log.display()))?;
        // `kill_on_drop` does not help when the test itself is killed.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(args)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("write the log")?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {name} by setpriv (package util-linux)"))?;
        Ok(Self { name, child, log })
    }

    /// Waits until `is_ready` says so.
    pub(crate) async fn await_ready<F>(&mut self, is_ready: impl Fn() -> F + Send) -> Result<()>
    where
        F: Future<Output = bool> + Send,
    {
        let end = Instant::now() + START_TIMEOUT;
        while !is_ready().await {
            if let Some(status) = self.child.try_wait().context("look after the server")? {
                bail!("{} has ended: {status}: {}", self.name, self.log_tail());
            }
            if Instant::now() > end {
                bail!("{} is not ready after {} s: {}", self.name, START_TIMEOUT.as_secs(), self.log_tail());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Kills the process, and waits until it has ended.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("kill {}", self.name))
    }

    /// Sends a signal. After SIGSTOP, none of its threads runs any more.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.child.id().with_context(|| format!("{} has ended", self.name))?;
        let id = i32::try_from(id).context("the id of the process")?;
        kill(Pid::from_raw(id), signal).with_context(|| format!("send {signal} to {}", self.name))?;
        let deadline = Instant::now() + STOPS_WITHIN;
        // A busy machine lets threads run on for some milliseconds.
        while signal == Signal::SIGSTOP && !is_stopped(id)? {
            if Instant::now() > deadline {
                bail!("{} did not stop within {} s", self.name, STOPS_WITHIN.as_secs());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

/// Returns true if all threads of the process are stopped.
fn is_stopped(id: i32) -> Result<bool> {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).context("list the threads of the server")?;
    for thread in threads {
        let stat = std::fs::read_to_string(thread?.path().join("stat")).unwrap_or_default();
        // The name of the thread may contain spaces. The state follows its closing bracket (proc(5)).
        if stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('T')) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether a server of loopback answers a GET of `path` with 200: its port is open before it serves.
pub(crate) async fn answers(port: u16, path: &str) -> Result<bool> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    Ok(status.ends_with(b" 200"))
}

/// Returns the path of a program of `part`.
pub(crate) fn program(name: &str, part: Part) -> Result<PathBuf> {
    let tools = Tools::cached()?;
    if !tools.is_complete(&[part]) {
        bail!("{name} is not built; run `cargo xtask testbed build`, or the tests by `cargo xtask test`");
    }
    Ok(tools.bin(name))
}

/// The ports for servers. They are not ephemeral ports of Linux, of which an outgoing connection may use any.
const SERVER_PORTS: Range<u16> = 10_000..30_000;

/// Returns free ports of loopback, each of them once: several servers start at the same time. Nothing keeps other processes
/// from using them.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut listeners = Vec::new();
    let mut ports = [0; N];
    for place in &mut ports {
        *place = loop {
            let port = fastrand::u16(SERVER_PORTS);
            let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => continue,
                listener => listener.with_context(|| format!("listen on port {port}"))?,
            };
            // Until all are found, the same one is not found again.
            listeners.push(listener);
            if GIVEN.lock().map_err(|_| anyhow!("the ports that were given are not known"))?.insert(port) {
                break port;
            }
        };
    }
    Ok(ports)
}
