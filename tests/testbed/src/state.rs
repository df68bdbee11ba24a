//! The folders of clusters: `BASE/ID` while the cluster lives, and `BASE/logs/ID` for its logs.
//!
//! A cluster lives as long as its supervisor or its init holds its lock file. The kernel releases a file lock when
//! the process ends, so nothing here relies on process ids. The start of a cluster removes what dead clusters left.

use std::{
    fs::{DirBuilder, DirEntry, File},
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::{
    cgroup,
    error::{During, TestClusterError},
    node_number::NodeNumber,
    shape::Shape,
};

/// The time after which kept logs are removed.
const KEEP_LOGS_FOR: Duration = Duration::from_secs(3 * 24 * 3600);

/// The age after which a folder without a record belongs to no starting cluster. A record is written within
/// milliseconds.
const UNFINISHED_AFTER: Duration = Duration::from_secs(600);

/// The description of a cluster in `cluster.json`. The owner writes it and the supervisor completes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClusterRecord {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) shape: Shape,
    /// The number of real nodes.
    pub(crate) nodes: usize,
    /// The number of API servers.
    pub(crate) api_servers: usize,
    /// True if the cluster stays when its owner ends.
    pub(crate) detached: bool,
    /// True if the cluster runs in a user namespace, because its owner is not root.
    pub(crate) user_namespace: bool,
    pub(crate) node_ip: IpAddr,
    /// The address of the API server for processes inside.
    pub(crate) api: SocketAddr,
    pub(crate) tools: PathBuf,
    pub(crate) logs: PathBuf,
    pub(crate) live: Option<RunningCluster>,
}

/// The part of the description that only a running cluster has.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct RunningCluster {
    pub(crate) supervisor_pid: u32,
    /// The process id of the cluster's PID 1 on the host.
    pub(crate) init_pid: i32,
    /// The address of the API server for the host.
    pub(crate) host_api: SocketAddr,
}

/// The paths of the files in a cluster's folder.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) dir: PathBuf,
}

impl Layout {
    pub(crate) fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    pub(crate) fn record(&self) -> PathBuf {
        self.dir.join("cluster.json")
    }

    pub(crate) fn control_socket(&self) -> PathBuf {
        self.control_socket_of(NodeNumber::FIRST)
    }

    /// Returns the control socket of a node.
    pub(crate) fn control_socket_of(&self, node: NodeNumber) -> PathBuf {
        self.dir.join(format!("{}.sock", node.own("control")))
    }

    pub(crate) fn supervisor_socket(&self) -> PathBuf {
        self.dir.join("supervisor.sock")
    }

    /// Returns the socket of the proxy before the second API server.
    pub(crate) fn lag_socket(&self) -> PathBuf {
        self.dir.join("lag.sock")
    }

    pub(crate) fn supervisor_lock(&self) -> PathBuf {
        self.dir.join("supervisor.lock")
    }

    pub(crate) fn init_lock(&self) -> PathBuf {
        self.dir.join("init.lock")
    }

    /// Returns the file whose presence makes the supervisor keep the logs.
    pub(crate) fn keep_logs(&self) -> PathBuf {
        self.dir.join("keep-logs")
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.dir.join("pki")
    }

    pub(crate) fn read(&self) -> Result<ClusterRecord, TestClusterError> {
        let path = self.record();
        let read = || Ok(serde_json::from_slice(&std::fs::read(&path)?)?);
        io::Result::during(read(), || format!("read {}", path.display()))
    }

    pub(crate) fn write(&self, record: &ClusterRecord) -> Result<(), TestClusterError> {
        let (path, next) = (self.record(), self.dir.join("cluster.json.next"));
        let write = || {
            std::fs::write(&next, serde_json::to_vec_pretty(record)?)?;
            std::fs::rename(&next, &path)
        };
        write().during(|| format!("write {}", path.display()))
    }

    /// Returns whether the cluster's supervisor or init still runs.
    pub(crate) fn lives(&self) -> bool {
        [self.supervisor_lock(), self.init_lock()].iter().any(|path| held(path))
    }
}

/// Takes a lock until the file is dropped or the process ends. Fails if another process holds it.
pub(crate) fn lock(path: &Path) -> Result<File, TestClusterError> {
    let file = File::create(path).during(|| format!("make the lock {}", path.display()))?;
    file.try_lock().map_err(io::Error::from).during(|| format!("lock {}", path.display()))?;
    Ok(file)
}

fn held(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock_shared().is_err())
}

/// Returns the folder of all clusters of this user: `PODWARD_TESTBED_STATE`, or a folder in the temporary folder.
/// Creates it if it is missing.
pub(crate) fn base() -> Result<PathBuf, TestClusterError> {
    let uid = nix::unistd::geteuid().as_raw();
    let base = std::env::var_os("PODWARD_TESTBED_STATE")
        .map(PathBuf::from)
        .unwrap_or_else(|| std::env::temp_dir().join(format!("podward-testbed-{uid}")));
    // Both are private inside a cluster, so that a cluster's folder must not be below them.
    if base.starts_with("/run") || base.starts_with("/var/run") || base.starts_with("/var/log") {
        let message = format!(
            "clusters can't live in {}: set PODWARD_TESTBED_STATE to a folder elsewhere",
            base.display()
        );
        return Err(TestClusterError::Unsupported(message));
    }
    let make = DirBuilder::new().recursive(true).mode(0o700).create(&base);
    make.during(|| format!("make the folder {}", base.display()))?;
    // Every user can write to the temporary folder. A folder that another user created there is not safe to use.
    let meta = std::fs::symlink_metadata(&base).during(|| format!("look at {}", base.display()))?;
    if !meta.is_dir() || meta.uid() != uid {
        let message = format!("{} belongs to another user: set PODWARD_TESTBED_STATE", base.display());
        return Err(TestClusterError::Unsupported(message));
    }
    Ok(base)
}

/// Takes the lock that is held while clusters are created or removed, so that a starting cluster is not removed as
/// dead.
pub(crate) fn lock_base(base: &Path) -> Result<File, TestClusterError> {
    let path = base.join("lock");
    let file = File::create(&path).during(|| format!("make the lock {}", path.display()))?;
    file.lock().during(|| format!("lock {}", path.display()))?;
    Ok(file)
}

/// Returns the folders of all clusters, including dead ones.
pub(crate) fn clusters(base: &Path) -> Vec<Layout> {
    let folders = entries(base).into_iter().map(|entry| entry.path());
    folders.filter(|path| path.join("cluster.json").is_file()).map(Layout::new).collect()
}

/// Removes what dead clusters left: cgroups, state, and expired logs. The caller must hold the lock of the base
/// folder.
pub(crate) fn sweep(base: &Path) {
    for layout in clusters(base).into_iter().filter(|layout| !layout.lives()) {
        if let Err(error) = remove(&layout) {
            tracing::warn!(cluster = %layout.dir.display(), error = %error, "cannot sweep a dead cluster");
        }
    }
    for entry in entries(&base.join("logs")) {
        if older(&entry, KEEP_LOGS_FOR) && !base.join(entry.file_name()).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    // The owner was killed while it created the folder.
    let unfinished =
        |entry: &DirEntry| entry.file_name() != "logs" && !entry.path().join("cluster.json").exists();
    for entry in entries(base).into_iter().filter(unfinished) {
        if entry.path().is_dir() && older(&entry, UNFINISHED_AFTER) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn entries(dir: &Path) -> Vec<DirEntry> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().collect()
}

fn older(entry: &DirEntry, age: Duration) -> bool {
    let modified = entry.metadata().and_then(|meta| meta.modified());
    modified.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|passed| passed > age))
}

/// Removes a cluster whose processes have ended or are ending: cgroups, folder, and logs unless they are kept.
pub(crate) fn remove(layout: &Layout) -> Result<(), TestClusterError> {
    let record = layout.read();
    if let Ok(record) = &record {
        if record.shape == Shape::Node {
            cgroup::remove(&record.id)?;
        }
        if !layout.keep_logs().exists() {
            remove_dir(&record.logs)?;
        }
    }
    remove_dir(&layout.dir)
}

/// Removes a folder. Mounts of namespaces that are ending keep it busy for a moment.
fn remove_dir(dir: &Path) -> Result<(), TestClusterError> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match std::fs::remove_dir_all(dir) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound && !dir.exists() => return Ok(()),
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            Err(source) => return Err(source).during(|| format!("remove {}", dir.display())),
        }
    }
}
