//! The cgroup of a cluster's node. The kubelet creates the cgroups of its pods below it. With cgroup v1 there is one
//! in every hierarchy.
//! hierarchy.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::error::{During, TestClusterError};

const ROOT: &str = "/sys/fs/cgroup";

/// Returns the cgroup's path, as kubelet's `cgroupRoot` wants it.
pub(crate) fn path(id: &str) -> String {
    format!("/podward-testbed-{id}")
}

fn unified() -> bool {
    Path::new(ROOT).join("cgroup.controllers").exists()
}

fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    if unified() {
        return vec![root.to_owned()];
    }
    // Names such as `cpu` may be links to `cpu,cpuacct`.
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let real = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    real.map(|entry| entry.path()).filter(|path| path.join("cgroup.procs").exists()).collect()
}

fn folders(id: &str) -> Vec<PathBuf> {
    hierarchies().into_iter().map(|hierarchy| hierarchy.join(&path(id)[1..])).collect()
}

/// Makes the cgroup, in every hierarchy.
pub(crate) fn create(id: &str) -> Result<(), TestClusterError> {
    for folder in folders(id) {
        make(&folder).during(|| format!("make the cgroup {}", folder.display()))?;
    }
    Ok(())
}

fn make(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // A new cpuset of version 1 has no processors and no memory, and takes no process until it has.
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (from, to) = (folder.with_file_name(file), folder.join(file));
        if !unified() && from.exists() {
            fs::write(to, fs::read(from)?)?;
        }
    }
    Ok(())
}

/// Removes the cgroup and everything below it. It waits for processes that are about to end.
pub(crate) fn remove(id: &str) -> Result<(), TestClusterError> {
    let deadline = Instant::now() + Duration::from_secs(10);
    for folder in folders(id) {
        loop {
            match remove_tree(&folder) {
                Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
                result => break result.during(|| format!("remove the cgroup {}", folder.display()))?,
            }
        }
    }
    Ok(())
}

fn remove_tree(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_tree(&entry.path())?;
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
