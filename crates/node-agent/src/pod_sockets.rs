//! The sockets of a pod: finds a process of the pod, and opens the network namespace of the process.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::connections::PodConnections;
use crate::pod_uid::PodUid;
use crate::sock_diag::SockDiag;

/// The reason for which the sockets of a pod cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodSocketsError {
    /// No process of the pod was found.
    #[error("no process of pod {0} runs on this node")]
    NotFound(PodUid),
    /// The pod shares the network of the node.
    #[error(
        "pod {0} uses the network of its node, so that its connections cannot be told from those of others"
    )]
    HostNetwork(PodUid),
    /// The pod listens on no TCP port of this kernel.
    #[error(
        "pod {0} listens on no TCP port that the kernel of its node knows: it may run in a sandbox with a kernel of its \
         own, so that its connections are not known"
    )]
    NoPort(PodUid),
    /// The sockets could not be read.
    #[error("could not {what} of pod {uid}: {source}")]
    Io {
        /// The attempted action.
        what: &'static str,
        /// The pod.
        uid: PodUid,
        /// The error.
        source: io::Error,
    },
}

/// The maximum number of network namespaces of a pod. A pod with more has no evidence.
const MAX_NAMESPACES: usize = 64;

/// The sockets of one pod.
pub(crate) struct PodSockets {
    uid: PodUid,
    /// The network namespaces of the pod's processes: one, or more if the pod runs containers of its own.
    namespaces: Vec<Namespace>,
}

/// A network namespace of a pod.
struct Namespace {
    path: PathBuf,
    inode: u64,
    diag: SockDiag,
}

impl PodSockets {
    /// Finds the pod among the processes in `proc`. This process must be in the network of the node.
    ///
    /// # Errors
    /// See [`PodSocketsError`].
    pub(crate) fn find(proc: &Path, uid: PodUid) -> Result<Self, PodSocketsError> {
        let fail = |what, uid: &PodUid| {
            let uid = uid.clone();
            move |source| PodSocketsError::Io { what, uid, source }
        };
        let node = inode(&proc.join("self/ns/net"))
            .map_err(fail("compare the network with that of the node", &uid))?;
        let processes = fs::read_dir(proc).map_err(fail("list the processes", &uid))?;
        let mut namespaces: Vec<Namespace> = Vec::new();
        for process in processes {
            let process = process.map_err(fail("list the processes", &uid))?;
            let folder = process.path();
            let is_process =
                process.file_name().to_str().is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit()));
            if !is_process {
                continue;
            }
            match fs::read_to_string(folder.join("cgroup")) {
                Ok(groups) if uid.is_of(&groups) => {}
                Ok(_) => continue,
                Err(error) if has_ended(&error) => continue,
                // The process may be one of the pod. Without it the list of connections would be incomplete.
                Err(error) => return Err(fail("read the control group of a process", &uid)(error)),
            }
            let path = folder.join("ns/net");
            let inode = match inode(&path) {
                Ok(inode) => inode,
                // A process may end at any moment. Then its sockets are gone, or another process has them.
                Err(error) if has_ended(&error) => continue,
                Err(error) => return Err(fail("look at the network namespace", &uid)(error)),
            };
            if inode == node {
                return Err(PodSocketsError::HostNetwork(uid));
            }
            if namespaces.iter().any(|known| known.inode == inode) {
                continue;
            }
            if namespaces.len() >= MAX_NAMESPACES {
                let error = io::Error::other(format!("there are more than {MAX_NAMESPACES}"));
                return Err(fail("open the network namespaces", &uid)(error));
            }
            match SockDiag::open(&path) {
                Ok(diag) => namespaces.push(Namespace { path, inode, diag }),
                Err(error) if has_ended(&error) => {}
                Err(error) => return Err(fail("open the network namespace", &uid)(error)),
            }
        }
        match namespaces.is_empty() {
            true => Err(PodSocketsError::NotFound(uid)),
            false => Ok(Self { uid, namespaces }),
        }
    }

    /// Reads the connections to the pod. On the ports `served` it may have listened before.
    ///
    /// # Errors
    /// Fails if the kernel does not answer, the pod neither listens on a port nor has a connection, or one of its processes
    /// has ended: the namespace of a new process with the same number is not that of the pod.
    pub(crate) fn connections(&self, served: &BTreeSet<u16>) -> Result<PodConnections, PodSocketsError> {
        let mut all = Vec::with_capacity(self.namespaces.len());
        for namespace in &self.namespaces {
            let read = namespace.diag.sockets();
            if inode(&namespace.path).ok() != Some(namespace.inode) {
                return Err(PodSocketsError::NotFound(self.uid.clone()));
            }
            let fail =
                |source| PodSocketsError::Io { what: "read the sockets", uid: self.uid.clone(), source };
            let mut sockets = read.map_err(fail)?;
            sockets.has_other_protocols |= has_sctp(&namespace.path).map_err(fail)?;
            all.push(sockets);
        }
        let found = PodConnections::of(&all, served);
        match found.ports.is_empty() && found.open == 0 {
            true => Err(PodSocketsError::NoPort(self.uid.clone())),
            false => Ok(found),
        }
    }
}

/// Returns true if `error` says that a process has ended.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ESRCH)
}

/// Returns true if a process of the namespace `/proc/<pid>/ns/net` has a socket of SCTP.
fn has_sctp(namespace: &Path) -> io::Result<bool> {
    let Some(process) = namespace.ancestors().nth(2) else { return Ok(false) };
    match fs::read_to_string(process.join("net/sctp/eps")) {
        // The first line names the columns.
        Ok(text) => Ok(text.lines().nth(1).is_some()),
        // The kernel has no SCTP.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the number of the namespace at `path`.
fn inode(path: &Path) -> io::Result<u64> {
    fs::metadata(path).map(|metadata| metadata.st_ino())
}

#[cfg(test)]
mod tests;
