//! The processes of a cluster: those that clients started, and orphans, which PID 1 inherits.

use std::{
    collections::HashMap,
    fs::OpenOptions,
    io,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{exit::Exit, protocol::SpawnRequest};

/// The statuses of all processes, and the last process of each name. They are kept as long as the cluster lives, because a cluster starts dozens of
/// processes, not millions.
#[derive(Default)]
pub(crate) struct Children {
    statuses: Mutex<HashMap<i32, watch::Sender<Option<Exit>>>>,
    named: Mutex<HashMap<String, (i32, SpawnRequest)>>,
}

impl Children {
    /// Starts a process in a group of its own.
    pub(crate) fn spawn(&self, spawn: &SpawnRequest) -> io::Result<i32> {
        let [program, args @ ..] = spawn.argv.as_slice() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program was named"));
        };
        let log = OpenOptions::new().create(true).append(true).open(&spawn.log)?;
        let mut command = Command::new(program);
        command.args(args).envs(spawn.env.iter().cloned()).current_dir(&spawn.cwd).process_group(0);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // Reaping takes the same lock, so a process that ends at once is recorded before it is reaped.
        let mut statuses = self.statuses.lock();
        let child = command.spawn()?;
        let pid = child.id().cast_signed();
        statuses.insert(pid, watch::Sender::new(None));
        self.named.lock().insert(spawn.name.clone(), (pid, spawn.clone()));
        Ok(pid)
    }

    /// Returns the last process with this name, which may have ended, and how it was started.
    pub(crate) fn find(&self, name: &str) -> io::Result<(i32, SpawnRequest)> {
        let unknown = || io::Error::new(io::ErrorKind::NotFound, format!("no process {name:?} was started"));
        self.named.lock().get(name).cloned().ok_or_else(unknown)
    }

    /// Collects every process that has ended, including orphans.
    pub(crate) fn reap(&self) {
        let statuses = self.statuses.lock();
        loop {
            let (pid, exit) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, Exit { code: Some(code), signal: None }),
                Ok(WaitStatus::Signaled(pid, signal, _)) => {
                    (pid, Exit { code: None, signal: Some(signal as i32) })
                }
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(_) => return,
            };
            if let Some(status) = statuses.get(&pid.as_raw()) {
                status.send_replace(Some(exit));
            }
        }
    }

    /// Returns the status of a process that a client started.
    pub(crate) fn watch(&self, pid: i32) -> io::Result<watch::Receiver<Option<Exit>>> {
        let statuses = self.statuses.lock();
        statuses.get(&pid).map(watch::Sender::subscribe).ok_or_else(|| unknown(pid))
    }

    /// Sends a signal to a process that a client started and that has not been reaped, so that its id cannot belong
    /// to another process.
    pub(crate) fn signal(&self, pid: i32, signal: i32) -> io::Result<()> {
        let signal = Signal::try_from(signal)?;
        let statuses = self.statuses.lock();
        let status = statuses.get(&pid).ok_or_else(|| unknown(pid))?;
        match *status.borrow() {
            Some(exit) => Err(io::Error::new(io::ErrorKind::NotFound, format!("it has ended with {exit}"))),
            None => Ok(kill(Pid::from_raw(pid), signal)?),
        }
    }
}

fn unknown(pid: i32) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("process {pid} was not started by this cluster"))
}
