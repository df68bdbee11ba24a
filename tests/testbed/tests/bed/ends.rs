//! However the owner ends, nothing is left.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podward_testbed::{Bed, Shape};

use crate::support::{builder, eventually, start};

/// Set for the process that the tests below kill: this program again, running only [`owner`].
const SHAPE: &str = "PODWARD_TEST_OWNS";

const SYSCTLS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

fn sysctls() -> BTreeMap<&'static str, String> {
    SYSCTLS
        .map(|name| (name, fs::read_to_string(Path::new("/proc/sys").join(name)).unwrap_or_default()))
        .into()
}

/// Not a test of its own: the owner that the others kill. It tells the bed's folder and id, and waits.
#[tokio::test(flavor = "multi_thread")]
async fn owner() {
    let Ok(shape) = std::env::var(SHAPE) else { return };
    let bed = start(builder(shape.parse().unwrap(), "owned")).await;
    println!("owns {} {}", bed.id(), bed.dir().display());
    std::future::pending::<()>().await;
}

struct Owner {
    child: Child,
    id: String,
    dir: PathBuf,
}

fn start_owner(shape: Shape) -> Owner {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["ends::owner", "--exact", "--nocapture", "--test-threads=1"]).env(SHAPE, shape.to_string());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines {
        if let Some((id, dir)) = line.unwrap().strip_prefix("owns ").and_then(|line| line.split_once(' ')) {
            return Owner { child, id: id.to_owned(), dir: dir.into() };
        }
    }
    panic!("the owner ended without a bed: {:?}", child.wait());
}

/// A process, told apart from a later one of the same id by when it started.
#[derive(Clone, Debug, PartialEq)]
struct Process {
    pid: u32,
    started: u64,
    command: String,
}

impl Process {
    fn read(pid: u32) -> Option<Process> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let command = fs::read_to_string(folder.join("cmdline")).ok()?.replace('\0', " ");
        // The name before the last bracket may have spaces; the start time is the 20th field after it, see proc(5).
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        let started = stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()?;
        Some(Process { pid, started, command })
    }

    fn runs(&self) -> bool {
        Process::read(self.pid).is_some_and(|now| now.started == self.started && !now.command.is_empty())
    }
}

/// The processes that belong to a bed: all that live in its network namespace, and its keeper.
fn processes(dir: &Path) -> Vec<Process> {
    let net = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let inside = net(&live(dir, "init_pid").to_string());
    let of = |entry: fs::DirEntry| {
        let pid = entry.file_name().into_string().ok()?;
        let process = Process::read(pid.parse().ok()?)?;
        let keeps = process.command.contains(&format!(" {}", dir.display()));
        (keeps || net(&pid) == inside).then_some(process)
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
    let record: serde_json::Value = serde_json::from_slice(&fs::read(dir.join("bed.json")).unwrap()).unwrap();
    i32::try_from(record["live"][field].as_i64().unwrap()).unwrap()
}

async fn end(processes: &[Process]) {
    let left = async || processes.iter().filter(|process| process.runs()).collect::<Vec<_>>();
    eventually("the processes end", left, Vec::is_empty).await;
}

async fn nothing_is_left(id: &str, dir: &Path, processes: &[Process]) {
    end(processes).await;
    eventually("the folder goes", async || dir.exists(), |there| !there).await;
    assert_eq!(cgroups(id), Vec::<PathBuf>::new());
    assert_eq!(mounts(id), Vec::<String>::new());
    assert!(Bed::list().unwrap().iter().all(|bed| bed.id != id));
}

async fn killed_owner_leaves_nothing(shape: Shape, least: usize) {
    let before = sysctls();
    let mut owner = start_owner(shape);
    let running = processes(&owner.dir);
    assert!(running.len() >= least, "the check sees the processes: {running:#?}");
    assert_eq!(shape == Shape::Node, !cgroups(&owner.id).is_empty(), "the check sees the cgroups");
    assert_eq!(sysctls(), before, "the machine's settings are as they were");
    owner.child.kill().unwrap();
    owner.child.wait().unwrap();
    nothing_is_left(&owner.id, &owner.dir, &running).await;
    assert_eq!(sysctls(), before, "the machine's settings are as they were");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_owner_leaves_nothing_of_a_control_plane() {
    killed_owner_leaves_nothing(Shape::ControlPlane, 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_owner_leaves_nothing_of_a_node() {
    if nix::unistd::geteuid().is_root() {
        killed_owner_leaves_nothing(Shape::Node, 9).await;
    } else {
        println!("skipped: a node needs root");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_keeper_leaves_is_swept_by_the_next_bed() {
    let bed = start(builder(Shape::ControlPlane, "swept")).await;
    let dir = bed.dir().to_owned();
    let running = processes(&dir);
    kill(Pid::from_raw(live(&dir, "keeper_pid")), Signal::SIGKILL).unwrap();
    // The kernel, with no help of ours, ends all that ran inside.
    end(&running).await;
    let next = start(builder(Shape::ControlPlane, "sweeper")).await;
    nothing_is_left(bed.id(), &dir, &running).await;
    next.down().await.unwrap();
}
