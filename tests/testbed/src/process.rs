//! Programs that run inside a cluster.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::libc;

use crate::{control::ControlClient, error::TestClusterError, exit::Exit};

/// The time that [`Process::stop`] waits before it kills.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A program to run inside a cluster. It has the host's files and the cluster's network.
#[derive(Clone, Debug)]
pub struct Command {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: Option<PathBuf>,
}

impl Command {
    /// Returns a command. `name` names the process in errors and names its log file. `program` is a path, or a name
    /// on the cluster's path.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self { name: name.into(), program: program.into(), args: Vec::new(), env: BTreeMap::new(), cwd: None }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable. The process also has the environment that started the cluster.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(key.into(), value.into());
        self
    }

    /// Sets the working folder. The default is the cluster's folder.
    #[must_use]
    pub fn current_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cwd = Some(dir.into());
        self
    }
}

/// A process inside a cluster. It keeps running when the handle is dropped, and ends with the cluster.
#[derive(Clone, Debug)]
pub struct Process {
    pub(crate) name: String,
    pub(crate) pid: i32,
    pub(crate) log: PathBuf,
    pub(crate) control: ControlClient,
}

impl Process {
    /// Returns the name of its [`Command`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its process id inside the cluster.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns the file with its standard output and error.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Returns the last `lines` lines of its log, or an empty string if there is no log.
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.log, lines).unwrap_or_default()
    }

    /// Returns whether the process still runs. It is false if the cluster has ended.
    pub fn is_running(&self) -> bool {
        matches!(self.control.status(self.pid), Ok(None))
    }

    /// Returns the exit status, or `None` while the process runs.
    pub fn try_exit(&self) -> Result<Option<Exit>, TestClusterError> {
        self.control.status(self.pid)
    }

    /// Sends a signal, by its number.
    pub async fn signal(&self, signal: i32) -> Result<(), TestClusterError> {
        self.control.signal(self.pid, signal).await
    }

    /// Waits for the end of the process and returns its exit status.
    pub async fn wait(&self) -> Result<Exit, TestClusterError> {
        self.control.wait(self.pid).await
    }

    /// Sends SIGTERM and waits for the end. Sends SIGKILL after 30 s; [`Exit::signal`] shows that.
    pub async fn stop(&self) -> Result<Exit, TestClusterError> {
        self.end(libc::SIGTERM).await
    }

    /// Sends SIGKILL and waits for the end.
    pub async fn kill(&self) -> Result<Exit, TestClusterError> {
        self.end(libc::SIGKILL).await
    }

    async fn end(&self, signal: i32) -> Result<Exit, TestClusterError> {
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

/// Returns the last `lines` lines of a text file.
pub(crate) fn tail(path: &Path, lines: usize) -> io::Result<String> {
    let bytes = std::fs::read(path)?;
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    Ok(all[all.len().saturating_sub(lines)..].join("\n"))
}
