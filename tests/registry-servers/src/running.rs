//! A server that can be stopped and started again.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::process::ServerProcess;

type Starting = Pin<Box<dyn Future<Output = Result<ServerProcess>> + Send>>;

/// The process of a server. Its state is in memory, or in `data` in its folder.
pub struct RunningServer {
    /// Starts the server in the folder, and waits until it is ready.
    start: Box<dyn Fn(PathBuf) -> Starting + Send + Sync>,
    process: ServerProcess,
    dir: TempDir,
}

impl RunningServer {
    /// Starts a server by `start`, which gets the path of `dir` and waits until the server is ready.
    pub(crate) async fn start<F>(
        dir: TempDir,
        start: impl Fn(PathBuf) -> F + Send + Sync + 'static,
    ) -> Result<Self>
    where
        F: Future<Output = Result<ServerProcess>> + Send + 'static,
    {
        let process = start(dir.path().to_owned()).await?;
        Ok(Self { start: Box::new(move |dir| Box::pin(start(dir))), process, dir })
    }

    /// Kills the server.
    ///
    /// # Errors
    /// Fails if it cannot be killed.
    pub async fn stop(&mut self) -> Result<()> {
        self.process.kill().await
    }

    /// Kills the server and starts it again, with the state in its folder.
    ///
    /// # Errors
    /// Fails if it does not become ready.
    pub async fn restart(&mut self) -> Result<()> {
        self.stop().await?;
        self.process = (self.start)(self.dir.path().to_owned()).await?;
        Ok(())
    }

    /// Kills the server and starts it again, without its state. Only for a server that was started alone.
    ///
    /// # Errors
    /// Fails if it does not become ready.
    pub async fn restart_empty(&mut self) -> Result<()> {
        self.stop().await?;
        let data = self.dir.path().join("data");
        if data.exists() {
            std::fs::remove_dir_all(&data).with_context(|| format!("remove {}", data.display()))?;
        }
        self.restart().await
    }

    /// Stops the server's processing, until [`resume`](Self::resume): it accepts connections, and does not answer.
    ///
    /// # Errors
    /// Fails if it has ended.
    pub fn pause(&self) -> Result<()> {
        self.process.signal(Signal::SIGSTOP)
    }

    /// Lets the server go on.
    ///
    /// # Errors
    /// Fails if it has ended.
    pub fn resume(&self) -> Result<()> {
        self.process.signal(Signal::SIGCONT)
    }
}

impl fmt::Debug for RunningServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningServer").field("process", &self.process).finish_non_exhaustive()
    }
}
