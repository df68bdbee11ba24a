//! Nothing is left of a cluster, however its owner ends.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use libtest_mimic::Trial;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podward_testbed::{Shape, TestCluster};

use crate::harness::{test, test_as_root};
use crate::support::{builder, eventually, start};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("ends::a_killed_owner_leaves_nothing_of_a_control_plane", || {
            killed_owner_leaves_nothing(Shape::ControlPlane, 6)
        }),
        test_as_root("ends::a_killed_owner_leaves_nothing_of_three_nodes", || {
            killed_owner_leaves_nothing(Shape::Node, 15)
        }),
        test(
            "ends::the_next_cluster_removes_what_a_killed_supervisor_left",
            the_next_cluster_removes_what_a_killed_supervisor_left,
        ),
    ]
}

/// The environment variable that makes this program start a cluster of the shape in its value, and own it until it is
/// killed.
pub(crate) const OWNED_SHAPE: &str = "PODWARD_TEST_OWNS";

const SYSCTLS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// The folder in which every kubelet has its socket for device plugins, whatever its own folder is.
const DEVICE_PLUGINS: &str = "/var/lib/kubelet/device-plugins";

/// Returns what a kubelet would change of the machine: sysctls, and files with the times of their last change.
fn machine() -> BTreeMap<PathBuf, String> {
    let sysctls = SYSCTLS.map(|name| Path::new("/proc/sys").join(name));
    let sysctls = sysctls.map(|path| (path.clone(), fs::read_to_string(path).unwrap_or_default()));
    let plugins = fs::read_dir(DEVICE_PLUGINS).into_iter().flatten().flatten();
    let changed = |path: PathBuf| {
        let time = fs::symlink_metadata(&path).and_then(|file| file.modified());
        (path, format!("{time:?}"))
    };
    plugins.map(|file| changed(file.path())).chain(sysctls).collect()
}

/// Starts a cluster, prints its id and folder, and waits. The tests run this in a process that they kill.
pub(crate) async fn own_until_killed(shape: &str) {
    let shape = shape.parse().unwrap();
    let nodes = if shape == Shape::Node { 3 } else { 1 };
    let cluster = start(builder(shape, "owned").nodes(nodes)).await;
    println!("owns {} {}", cluster.id(), cluster.dir().display());
    std::future::pending::<()>().await;
}

struct Owner {
    child: Child,
    id: String,
    dir: PathBuf,
}

fn start_owner(shape: Shape) -> Owner {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut child = command.env(OWNED_SHAPE, shape.to_string()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines {
        if let Some((id, dir)) = line.unwrap().strip_prefix("owns ").and_then(|line| line.split_once(' ')) {
            return Owner { child, id: id.to_owned(), dir: dir.into() };
        }
    }
    panic!("the owner ended without a cluster: {:?}", child.wait());
}

/// A process. The start time distinguishes it from a later one with the same id.
#[derive(Clone, Debug, PartialEq)]
struct ObservedProcess {
    pid: u32,
    started: u64,
    command: String,
}

impl ObservedProcess {
    fn read(pid: u32) -> Option<ObservedProcess> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let command = fs::read_to_string(folder.join("cmdline")).ok()?.replace('\0', " ");
        // The name before the last bracket may contain spaces. The start time is the 20th field after it, see
        // proc(5).
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        let started = stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()?;
        Some(ObservedProcess { pid, started, command })
    }

    fn runs(&self) -> bool {
        ObservedProcess::read(self.pid)
            .is_some_and(|now| now.started == self.started && !now.command.is_empty())
    }
}

/// Returns the processes of a cluster: all processes in its PID namespace, and its supervisor.
fn processes(dir: &Path) -> Vec<ObservedProcess> {
    let space = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let inside = space(&live(dir, "init_pid").to_string());
    let of = |entry: fs::DirEntry| {
        let pid = entry.file_name().into_string().ok()?;
        let process = ObservedProcess::read(pid.parse().ok()?)?;
        let keeps = process.command.contains(&format!(" {}", dir.display()));
        (keeps || space(&pid) == inside).then_some(process)
    };
    fs::read_dir("/proc").unwrap().flatten().filter_map(of).collect()
}

fn cgroups(id: &str) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let parents = fs::read_dir(root).unwrap().flatten().map(|entry| entry.path()).chain([root.to_owned()]);
    parents.map(|parent| parent.join(format!("podward-testbed-{id}"))).filter(|path| path.exists()).collect()
}

fn mounts(id: &str) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    table.lines().filter(|line| line.contains(id)).map(str::to_owned).collect()
}

fn live(dir: &Path, field: &str) -> i32 {
    let record: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.join("cluster.json")).unwrap()).unwrap();
    i32::try_from(record["live"][field].as_i64().unwrap()).unwrap()
}

async fn end(processes: &[ObservedProcess]) {
    let left = async || processes.iter().filter(|process| process.runs()).collect::<Vec<_>>();
    eventually("the processes end", left, Vec::is_empty).await;
}

async fn nothing_is_left(id: &str, dir: &Path, processes: &[ObservedProcess]) {
    end(processes).await;
    eventually("the folder goes", async || dir.exists(), |there| !there).await;
    assert_eq!(cgroups(id), Vec::<PathBuf>::new());
    assert_eq!(mounts(id), Vec::<String>::new());
    assert!(TestCluster::list().unwrap().iter().all(|cluster| cluster.id != id));
}

async fn killed_owner_leaves_nothing(shape: Shape, least: usize) {
    let before = machine();
    let mut owner = start_owner(shape);
    let running = processes(&owner.dir);
    assert!(running.len() >= least, "the check sees the processes: {running:#?}");
    assert_eq!(shape == Shape::Node, !cgroups(&owner.id).is_empty(), "the check sees the cgroups");
    assert_eq!(machine(), before, "the machine is as it was");
    owner.child.kill().unwrap();
    owner.child.wait().unwrap();
    nothing_is_left(&owner.id, &owner.dir, &running).await;
    assert_eq!(machine(), before, "the machine is as it was");
}

async fn the_next_cluster_removes_what_a_killed_supervisor_left() {
    let cluster = start(builder(Shape::ControlPlane, "swept")).await;
    let dir = cluster.dir().to_owned();
    let running = processes(&dir);
    kill(Pid::from_raw(live(&dir, "supervisor_pid")), Signal::SIGKILL).unwrap();
    // The kernel alone ends everything inside.
    end(&running).await;
    let next = start(builder(Shape::ControlPlane, "sweeper")).await;
    nothing_is_left(cluster.id(), &dir, &running).await;
    next.down().await.unwrap();
}
