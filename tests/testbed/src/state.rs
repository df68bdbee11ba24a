//! The folders of beds: `BASE/ID` while the bed lives, `BASE/logs/ID` for its logs.
//!
//! A bed lives as long as its keeper or its init holds the lock file of that name: file locks go with the process
//! however it ends, so nothing here trusts a process id. What dead beds left is swept whenever a new one starts.

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
    error::{BedError, During},
    shape::Shape,
};

/// Logs that were kept for a reader are removed after this time.
const KEEP_LOGS_FOR: Duration = Duration::from_secs(3 * 24 * 3600);

/// A folder without a record is made into a bed's within milliseconds, or not any more.
const UNFINISHED_AFTER: Duration = Duration::from_secs(600);

/// What is known of a bed, in `bed.json`. The owner writes it, the keeper completes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) shape: Shape,
    /// Whether it goes on without its owner.
    pub(crate) detached: bool,
    /// Whether it runs in a user namespace, since its owner is not root.
    pub(crate) user_namespace: bool,
    pub(crate) node_ip: IpAddr,
    /// The API server, as processes inside see it.
    pub(crate) api: SocketAddr,
    pub(crate) tools: PathBuf,
    pub(crate) logs: PathBuf,
    pub(crate) live: Option<Live>,
}

/// What only a running bed has.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Live {
    pub(crate) keeper_pid: u32,
    /// The host's process id of the bed's PID 1.
    pub(crate) init_pid: i32,
    /// The API server, as the host sees it.
    pub(crate) host_api: SocketAddr,
}

/// The files in a bed's folder.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) dir: PathBuf,
}

impl Layout {
    pub(crate) fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    pub(crate) fn record(&self) -> PathBuf {
        self.dir.join("bed.json")
    }

    pub(crate) fn control_socket(&self) -> PathBuf {
        self.dir.join("control.sock")
    }

    pub(crate) fn keeper_socket(&self) -> PathBuf {
        self.dir.join("keeper.sock")
    }

    pub(crate) fn keeper_lock(&self) -> PathBuf {
        self.dir.join("keeper.lock")
    }

    pub(crate) fn init_lock(&self) -> PathBuf {
        self.dir.join("init.lock")
    }

    /// Its presence tells the keeper to leave the logs behind.
    pub(crate) fn keep_logs(&self) -> PathBuf {
        self.dir.join("keep-logs")
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.dir.join("pki")
    }

    pub(crate) fn read(&self) -> Result<Record, BedError> {
        let path = self.record();
        let read = || Ok(serde_json::from_slice(&std::fs::read(&path)?)?);
        io::Result::during(read(), || format!("read {}", path.display()))
    }

    pub(crate) fn write(&self, record: &Record) -> Result<(), BedError> {
        let (path, next) = (self.record(), self.dir.join("bed.json.next"));
        let write = || {
            std::fs::write(&next, serde_json::to_vec_pretty(record)?)?;
            std::fs::rename(&next, &path)
        };
        write().during(|| format!("write {}", path.display()))
    }

    /// Whether the bed's keeper or init still runs.
    pub(crate) fn lives(&self) -> bool {
        [self.keeper_lock(), self.init_lock()].iter().any(|path| held(path))
    }
}

/// Takes a lock that is held until the file is dropped or the process ends; fails if another holds it.
pub(crate) fn lock(path: &Path) -> Result<File, BedError> {
    let file = File::create(path).during(|| format!("make the lock {}", path.display()))?;
    file.try_lock().map_err(io::Error::from).during(|| format!("lock {}", path.display()))?;
    Ok(file)
}

fn held(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock_shared().is_err())
}

/// The folder of all beds of this user: `PODWARD_TESTBED_STATE`, or one in the temporary folder. Made if missing.
pub(crate) fn base() -> Result<PathBuf, BedError> {
    let uid = nix::unistd::geteuid().as_raw();
    let base = std::env::var_os("PODWARD_TESTBED_STATE")
        .map(PathBuf::from)
        .unwrap_or_else(|| std::env::temp_dir().join(format!("podward-testbed-{uid}")));
    // Inside a bed these two are private, so a bed's folder must not be below them.
    if base.starts_with("/run") || base.starts_with("/var/run") || base.starts_with("/var/log") {
        let message =
            format!("beds can't live in {}: set PODWARD_TESTBED_STATE to a folder elsewhere", base.display());
        return Err(BedError::Unsupported(message));
    }
    let make = DirBuilder::new().recursive(true).mode(0o700).create(&base);
    make.during(|| format!("make the folder {}", base.display()))?;
    // Other users may write in the temporary folder: a folder that somebody else has put there is not ours to use.
    let meta = std::fs::symlink_metadata(&base).during(|| format!("look at {}", base.display()))?;
    if !meta.is_dir() || meta.uid() != uid {
        let message = format!("{} belongs to somebody else: set PODWARD_TESTBED_STATE", base.display());
        return Err(BedError::Unsupported(message));
    }
    Ok(base)
}

/// Held while beds are made or swept, so that a sweep never takes a bed for dead that is only being born.
pub(crate) fn lock_base(base: &Path) -> Result<File, BedError> {
    let path = base.join("lock");
    let file = File::create(&path).during(|| format!("make the lock {}", path.display()))?;
    file.lock().during(|| format!("lock {}", path.display()))?;
    Ok(file)
}

/// All folders of beds, living or dead.
pub(crate) fn beds(base: &Path) -> Vec<Layout> {
    let folders = entries(base).into_iter().map(|entry| entry.path());
    folders.filter(|path| path.join("bed.json").is_file()).map(Layout::new).collect()
}

/// Removes what dead beds left: cgroups, state, and logs that nobody fetched. The base must be locked.
pub(crate) fn sweep(base: &Path) {
    for layout in beds(base).into_iter().filter(|layout| !layout.lives()) {
        if let Err(error) = remove(&layout) {
            tracing::warn!(bed = %layout.dir.display(), error = %error, "cannot sweep a dead bed");
        }
    }
    for entry in entries(&base.join("logs")) {
        if older(&entry, KEEP_LOGS_FOR) && !base.join(entry.file_name()).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    // An owner that was killed while it made the folder.
    let unfinished =
        |entry: &DirEntry| entry.file_name() != "logs" && !entry.path().join("bed.json").exists();
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

/// Removes a bed whose processes are gone or going: cgroups, folder, and logs unless they are to be kept.
pub(crate) fn remove(layout: &Layout) -> Result<(), BedError> {
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

/// Mounts of namespaces that are being torn down keep a folder busy for a moment.
fn remove_dir(dir: &Path) -> Result<(), BedError> {
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
