//! Programs that run inside a bed.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::libc;
use serde::{Deserialize, Serialize};

use crate::{control::Control, error::BedError};

/// How long [`Process::stop`] waits before it kills.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A program to run inside a bed, with the host's files and the bed's network.
#[derive(Clone, Debug)]
pub struct Command {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: Option<PathBuf>,
}

impl Command {
    /// `name` names the process in errors and is the name of its log file; `program` is a path, or a name that is on
    /// the bed's path.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self { name: name.into(), program: program.into(), args: Vec::new(), env: BTreeMap::new(), cwd: None }
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// A variable, in addition to the environment that the bed was started in.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(key.into(), value.into());
        self
    }

    /// The working folder; otherwise the bed's own folder.
    #[must_use]
    pub fn current_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cwd = Some(dir.into());
        self
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code, if it ended by itself.
    pub code: Option<i32>,
    /// The signal that ended it otherwise.
    pub signal: Option<i32>,
}

impl Exit {
    /// Whether it ended by itself with code 0.
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit code {code}"),
            (None, Some(signal)) => write!(f, "signal {signal}"),
            (None, None) => f.write_str("an unknown status"),
        }
    }
}

/// A process inside a bed. Dropping the handle leaves it running: it ends with the bed.
#[derive(Clone, Debug)]
pub struct Process {
    pub(crate) name: String,
    pub(crate) pid: i32,
    pub(crate) log: PathBuf,
    pub(crate) control: Control,
}

impl Process {
    /// The name that its [`Command`] gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id inside the bed.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The file that has its standard output and error.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// The last `lines` lines of its log; empty if there is none.
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.log, lines).unwrap_or_default()
    }

    /// Whether it still runs. A bed that has ended runs nothing.
    pub fn is_running(&self) -> bool {
        matches!(self.control.status(self.pid), Ok(None))
    }

    /// How it ended, or `None` while it runs.
    pub fn try_exit(&self) -> Result<Option<Exit>, BedError> {
        self.control.status(self.pid)
    }

    /// Sends a signal by its number.
    pub async fn signal(&self, signal: i32) -> Result<(), BedError> {
        self.control.signal(self.pid, signal).await
    }

    /// Waits until it has ended.
    pub async fn wait(&self) -> Result<Exit, BedError> {
        self.control.wait(self.pid).await
    }

    /// SIGTERM, then waits for the end; SIGKILL if it has not ended after 30 s, which [`Exit::signal`] shows.
    pub async fn stop(&self) -> Result<Exit, BedError> {
        self.end(libc::SIGTERM).await
    }

    /// SIGKILL, then waits for the end.
    pub async fn kill(&self) -> Result<Exit, BedError> {
        self.end(libc::SIGKILL).await
    }

    async fn end(&self, signal: i32) -> Result<Exit, BedError> {
        if let Some(exit) = self.try_exit()? {
            return Ok(exit);
        }
        let sent = self.signal(signal).await;
        if let Ok(exit) = tokio::time::timeout(STOP_TIMEOUT, self.wait()).await {
            return exit;
        }
        sent?;
        self.signal(libc::SIGKILL).await?;
        self.wait().await
    }
}

/// The last `lines` lines of a text file.
pub(crate) fn tail(path: &Path, lines: usize) -> io::Result<String> {
    let bytes = std::fs::read(path)?;
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    Ok(all[all.len().saturating_sub(lines)..].join("\n"))
}
