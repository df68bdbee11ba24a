//! The keeper: a process outside of a bed's namespaces, in a session of its own, that starts the bed, relays ports of the
//! host into it, and clears everything away when the bed ends.
//!
//! It ends the bed when its standard input does, of which the owner holds the only other end: however the owner ends, the
//! kernel closes it. (A parent-death signal would not do: it comes when the *thread* that started the keeper ends.) The
//! keeper of a detached bed is told to ignore that, and ends on SIGTERM or when asked over `keeper.sock`. If the keeper itself
//! is killed, init sees the end of its own input and ends, and the next bed sweeps what is left.

mod relay;
mod serve;

use std::{
    io::{Write, stdout},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::Stdio,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::{TcpListener, UnixListener, UnixStream},
    process::{Child, ChildStdin, Command},
    signal::unix::{SignalKind, signal},
    time::timeout,
};

use crate::{
    cgroup,
    control::Control,
    error::{BedError, During},
    init::READY,
    process::tail,
    shape::Shape,
    state::{Layout, Live, Record, lock, remove},
};

/// How long the kernel may take to end everything inside.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// What the keeper prints as its one line of output.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Report {
    /// The namespaces are ready.
    Ready(Live),
    /// They are not, and why.
    Failed(String),
}

/// Keeps the bed in `dir` until its owner ends. Reports on standard output once it is up.
pub(crate) fn run(dir: &Path) -> Result<(), BedError> {
    let layout = Layout::new(dir);
    // A terminal's signals are for the owner; what they mean for the bed follows from the owner's end.
    nix::unistd::setsid().during(|| "leave the owner's session".to_owned())?;
    let _lock = lock(&layout.keeper_lock())?;
    let record = layout.read()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.during(|| "start the runtime of the keeper".to_owned())?;
    let kept = runtime.block_on(keep(&layout, record));
    if let Err(error) = &kept {
        report(&Report::Failed(crate::text_of(error)));
    }
    let removed = remove(&layout);
    // A read of the owner's pipe may still hang in a thread: the process ends without it.
    runtime.shutdown_background();
    kept.and(removed)
}

fn report(report: &Report) {
    if let Ok(line) = serde_json::to_string(report) {
        let _ = writeln!(stdout(), "{line}").and_then(|()| stdout().flush());
    }
}

async fn keep(layout: &Layout, mut record: Record) -> Result<(), BedError> {
    let mut terminated = signal(SignalKind::terminate()).during(|| "watch for SIGTERM".to_owned())?;
    if record.shape == Shape::Node {
        cgroup::create(&record.id)?;
    }
    let mut init = start_init(layout, &record)?;
    // Waiting for a child would close it.
    let hold = init.stdin.take();
    let init_pid = match until_ready(layout, &record, &mut init).await {
        Ok(pid) => pid,
        Err(error) => {
            end_init(&mut init, hold).await;
            return Err(error);
        }
    };

    let orders = Arc::new(serve::Orders::default());
    let served = serve_host(layout, &record, &orders).await;
    let host_api = match served {
        Ok(address) => address,
        Err(error) => {
            end_init(&mut init, hold).await;
            return Err(error);
        }
    };
    let live = Live { keeper_pid: std::process::id(), init_pid, host_api };
    record.live = Some(live);
    let written = layout.write(&record);
    if written.is_ok() {
        report(&Report::Ready(live));
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

fn start_init(layout: &Layout, record: &Record) -> Result<Child, BedError> {
    let program = std::env::current_exe().during(|| "find the keeper's own program".to_owned())?;
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

/// Waits until init serves, and gives the host's process id of it.
async fn until_ready(layout: &Layout, record: &Record, init: &mut Child) -> Result<i32, BedError> {
    let mut line = String::new();
    if let Some(output) = init.stdout.take() {
        let read = timeout(END_TIMEOUT, BufReader::new(output).read_line(&mut line)).await;
        read.map_err(|_| std::io::ErrorKind::TimedOut.into())
            .flatten()
            .during(|| "wait for the bed's namespaces".to_owned())?;
    }
    if line.trim() != READY {
        let said = tail(&record.logs.join("init.log"), 10).unwrap_or_default();
        let hint = if record.user_namespace {
            "; user namespaces may be forbidden on this machine: run as root, or allow them"
        } else {
            ""
        };
        return Err(BedError::Unsupported(format!("cannot make the bed's namespaces{hint}: {said}")));
    }
    let socket = layout.control_socket();
    // The kernel translates the id of the process that listens into one of our own namespace.
    let peer = async { UnixStream::connect(&socket).await?.peer_cred() }.await;
    let peer = peer.during(|| format!("connect to {}", socket.display()))?;
    peer.pid().ok_or_else(|| BedError::Unsupported("the kernel does not tell whose a socket is".to_owned()))
}

/// Opens the API server to the host, and `keeper.sock`.
async fn serve_host(
    layout: &Layout,
    record: &Record,
    orders: &Arc<serve::Orders>,
) -> Result<SocketAddr, BedError> {
    let control = Control::new(layout.control_socket());
    let host_api = relay::forward(control.clone(), record.api).await?;
    let socket = layout.keeper_socket();
    let listener = UnixListener::bind(&socket).during(|| format!("listen on {}", socket.display()))?;
    tokio::spawn(serve::serve(listener, control, orders.clone()));
    Ok(host_api)
}

/// A free port of the host's loopback.
async fn loopback() -> Result<TcpListener, BedError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.during(|| "listen on a loopback port".to_owned())
}

async fn end_init(init: &mut Child, hold: Option<ChildStdin>) {
    drop(hold);
    if timeout(END_TIMEOUT, init.wait()).await.is_err() {
        let _ = init.kill().await;
    }
}
