//! The cgroups of a cluster's nodes. A kubelet creates the cgroups of its pods below that of its node. With cgroup v1
//! there is one in every hierarchy.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    error::{During, TestClusterError},
    node_number::NodeNumber,
};

const ROOT: &str = "/sys/fs/cgroup";

/// The share of the processors that a cluster's pods get, in those of one process outside of all cgroups. Without it,
/// all pods together have as much as each of those processes. A real node gives its pods most of its processors.
const WEIGHT: u32 = 32;

/// Returns the path of the cluster's cgroup.
fn path(id: &str) -> String {
    format!("/podward-testbed-{id}")
}

/// Returns the path of a node's cgroup, as kubelet's `cgroupRoot` wants it: that of the cluster for the first node,
/// and one below it for each other node.
pub(crate) fn path_of(id: &str, node: NodeNumber) -> String {
    node.folder(Path::new(&path(id))).display().to_string()
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

fn folders(path: &str) -> Vec<PathBuf> {
    hierarchies().into_iter().map(|hierarchy| hierarchy.join(&path[1..])).collect()
}

/// Makes the cgroups of the first `nodes` nodes, in every hierarchy.
pub(crate) fn create(id: &str, nodes: usize) -> Result<(), TestClusterError> {
    for folder in NodeNumber::all(nodes).flat_map(|node| folders(&path_of(id, node))) {
        make(&folder).during(|| format!("make the cgroup {}", folder.display()))?;
    }
    // The cgroups of the other nodes are below that of the first.
    for folder in folders(&path(id)) {
        set_weight(&folder).during(|| format!("set the weight of the cgroup {}", folder.display()))?;
    }
    Ok(())
}

/// Sets the weight of a cgroup that has one. The weights of a process are 100 and 1024.
fn set_weight(folder: &Path) -> io::Result<()> {
    for (file, of_process) in [("cpu.weight", 100), ("cpu.shares", 1024)] {
        let file = folder.join(file);
        if file.exists() {
            fs::write(file, (WEIGHT * of_process).to_string())?;
        }
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

/// Removes the cgroups of all nodes and everything below them. It waits for processes that are about to end.
pub(crate) fn remove(id: &str) -> Result<(), TestClusterError> {
    let deadline = Instant::now() + Duration::from_secs(10);
    for folder in folders(&path(id)) {
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
