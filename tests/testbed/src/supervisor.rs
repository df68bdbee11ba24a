//! The supervisor: a process outside of a cluster's namespaces, in a session of its own. It starts the cluster,
//! relays ports of the host into it, and removes everything when the cluster ends.
//!
//! It ends the cluster when its standard input ends. Only the owner holds the other end, and the kernel closes that,
//! however the owner ends. (A parent-death signal is not enough: the kernel sends it when the *thread* that started
//! the supervisor ends.) The supervisor of a detached cluster ignores the end of its input. It ends on SIGTERM or on
//! a request to `supervisor.sock`. If the supervisor is killed, init sees the end of its own input and ends, and the
//! next cluster removes what is left.

mod relay;
mod serve;

use std::{
    io::{Write, stdout},
    net::SocketAddr,
    path::Path,
    process::Stdio,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::{UnixListener, UnixStream},
    process::{Child, ChildStdin, Command},
    signal::unix::{SignalKind, signal},
    time::timeout,
};

use crate::{
    cgroup,
    control::ControlClient,
    error::{During, TestClusterError},
    process::tail,
    protocol::READY,
    shape::Shape,
    state::{ClusterRecord, Layout, RunningCluster, lock, remove},
};

/// The time that the kernel may take to end everything inside.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The one line of output of the supervisor.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StartReport {
    /// The namespaces are ready.
    Ready(RunningCluster),
    /// The namespaces are not ready, for this reason.
    Failed(String),
}

/// Supervises the cluster in `dir` until its owner ends. Reports on standard output when the cluster is up.
pub(crate) fn run(dir: &Path) -> Result<(), TestClusterError> {
    let layout = Layout::new(dir);
    // Signals of a terminal are for the owner. The cluster ends when the owner ends.
    nix::unistd::setsid().during(|| "leave the owner's session".to_owned())?;
    let _lock = lock(&layout.supervisor_lock())?;
    let record = layout.read()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.during(|| "start the runtime of the supervisor".to_owned())?;
    let kept = runtime.block_on(keep(&layout, record));
    if let Err(error) = &kept {
        report(&StartReport::Failed(crate::text_of(error)));
    }
    let removed = remove(&layout);
    // A read of the owner's pipe may still block a thread. The process ends without it.
    runtime.shutdown_background();
    kept.and(removed)
}

fn report(report: &StartReport) {
    if let Ok(line) = serde_json::to_string(report) {
        let _ = writeln!(stdout(), "{line}").and_then(|()| stdout().flush());
    }
}

async fn keep(layout: &Layout, mut record: ClusterRecord) -> Result<(), TestClusterError> {
    let mut terminated = signal(SignalKind::terminate()).during(|| "watch for SIGTERM".to_owned())?;
    if record.shape == Shape::Node {
        cgroup::create(&record.id, record.nodes)?;
    }
    let mut init = start_init(layout, &record)?;
    // Waiting for a child closes its standard input.
    let hold = init.stdin.take();
    let init_pid = match until_ready(layout, &record, &mut init).await {
        Ok(pid) => pid,
        Err(error) => {
            end_init(&mut init, hold).await;
            return Err(error);
        }
    };

    let orders = Arc::new(serve::OwnerOrders::default());
    let served = serve_host(layout, &record, &orders).await;
    let host_api = match served {
        Ok(address) => address,
        Err(error) => {
            end_init(&mut init, hold).await;
            return Err(error);
        }
    };
    let live = RunningCluster { supervisor_pid: std::process::id(), init_pid, host_api };
    record.live = Some(live);
    let written = layout.write(&record);
    if written.is_ok() {
        report(&StartReport::Ready(live));
    }

    let mut owner = tokio::io::stdin();
    let (mut byte, mut owned) = ([0], true);
    while written.is_ok() {
        tokio::select! {
            _ = owner.read(&mut byte), if owned => {
                owned = false;
                if !orders.detached.load(Ordering::SeqCst) {
                    break;
                }
            }
            _ = terminated.recv() => break,
            () = orders.stop.notified() => break,
            _ = init.wait() => break,
        }
    }
    end_init(&mut init, hold).await;
    written
}

fn start_init(layout: &Layout, record: &ClusterRecord) -> Result<Child, TestClusterError> {
    let program = std::env::current_exe().during(|| "find the supervisor's own program".to_owned())?;
    let path = record.logs.join("init.log");
    let log = std::fs::File::create(&path).during(|| format!("make {}", path.display()))?;
    let mut command = Command::new("unshare");
    if record.user_namespace {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["-n", "-m", "-p", "-u", "-i", "--fork", "--mount-proc", "--propagation", "private", "--"]);
    command.arg(program).arg("init").arg(&layout.dir).current_dir(&layout.dir);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    command.spawn().during(|| "run `unshare` (package util-linux)".to_owned())
}

/// Waits until init serves, and returns its process id on the host.
async fn until_ready(
    layout: &Layout,
    record: &ClusterRecord,
    init: &mut Child,
) -> Result<i32, TestClusterError> {
    let mut line = String::new();
    if let Some(output) = init.stdout.take() {
        let read = timeout(END_TIMEOUT, BufReader::new(output).read_line(&mut line)).await;
        read.map_err(|_| std::io::ErrorKind::TimedOut.into())
            .flatten()
            .during(|| "wait for the cluster's namespaces".to_owned())?;
    }
    if line.trim() != READY {
        let said = tail(&record.logs.join("init.log"), 10).unwrap_or_default();
        let hint = if record.user_namespace {
            "; user namespaces may be forbidden on this machine: run as root, or allow them"
        } else {
            ""
        };
        return Err(TestClusterError::Unsupported(format!(
            "cannot make the cluster's namespaces{hint}: {said}"
        )));
    }
    let socket = layout.control_socket();
    // The kernel translates the process id of the listener into this namespace.
    let peer = async { UnixStream::connect(&socket).await?.peer_cred() }.await;
    let peer = peer.during(|| format!("connect to {}", socket.display()))?;
    peer.pid()
        .ok_or_else(|| TestClusterError::Unsupported("the kernel does not tell whose a socket is".to_owned()))
}

/// Opens a port of the host for the API server, and `supervisor.sock`.
async fn serve_host(
    layout: &Layout,
    record: &ClusterRecord,
    orders: &Arc<serve::OwnerOrders>,
) -> Result<SocketAddr, TestClusterError> {
    let control = ControlClient::new(layout.control_socket());
    let host_api = relay::forward(control.clone(), record.api).await?;
    let socket = layout.supervisor_socket();
    let listener = UnixListener::bind(&socket).during(|| format!("listen on {}", socket.display()))?;
    tokio::spawn(serve::serve(listener, control, orders.clone()));
    Ok(host_api)
}

async fn end_init(init: &mut Child, hold: Option<ChildStdin>) {
    drop(hold);
    if timeout(END_TIMEOUT, init.wait()).await.is_err() {
        let _ = init.kill().await;
    }
}
