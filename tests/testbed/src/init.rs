//! PID 1 of a cluster's namespaces: prepares them, starts and reaps processes, and relays connections.
//!
//! It serves `control.sock` in the cluster's folder. So a client need not enter the namespaces, and clusters of root
//! and clusters in a user namespace work the same way. Init ends when its standard input ends. Only its supervisor
//! holds the other end open. Then the kernel kills everything inside and removes the mounts and devices.

mod children;
mod namespaces;
mod serve;

use std::{
    io::{Write, stdout},
    path::Path,
    sync::Arc,
};

use tokio::{
    io::AsyncReadExt,
    net::UnixListener,
    signal::unix::{SignalKind, signal},
};

use self::children::Children;
use crate::{
    error::{During, TestClusterError},
    shape::Shape,
    state::{Layout, lock},
};

/// The line that init prints when it serves `control.sock`.
pub(crate) const READY: &str = "ready";

/// Runs init for the cluster in `dir` until its standard input ends.
pub(crate) fn run(dir: &Path) -> Result<(), TestClusterError> {
    let layout = Layout::new(dir);
    let record = layout.read()?;
    let _lock = lock(&layout.init_lock())?;
    namespaces::network(record.node_ip)?;
    namespaces::mounts(&layout)?;
    if record.shape == Shape::Node {
        namespaces::fixed_sysctls(&layout)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.during(|| "start the runtime of init".to_owned())?.block_on(serve_until_eof(&layout))
}

async fn serve_until_eof(layout: &Layout) -> Result<(), TestClusterError> {
    let socket = layout.control_socket();
    let listener = UnixListener::bind(&socket).during(|| format!("listen on {}", socket.display()))?;
    let mut child_ended = signal(SignalKind::child()).during(|| "watch for SIGCHLD".to_owned())?;
    let mut terminated = signal(SignalKind::terminate()).during(|| "watch for SIGTERM".to_owned())?;
    let children = Arc::new(Children::default());
    let said = writeln!(stdout(), "{READY}").and_then(|()| stdout().flush());
    said.during(|| "tell the supervisor that init is ready".to_owned())?;
    let mut input = tokio::io::stdin();
    let mut byte = [0];
    loop {
        tokio::select! {
            read = input.read(&mut byte) => if !matches!(read, Ok(1)) { return Ok(()) },
            _ = terminated.recv() => return Ok(()),
            _ = child_ended.recv() => children.reap(),
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                tokio::spawn(serve::serve(stream, children.clone()));
            },
        }
    }
}
