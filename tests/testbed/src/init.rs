//! PID 1 of a cluster's namespaces: prepares them, starts and reaps processes, and relays connections.
//!
//! It serves `control.sock` in the cluster's folder. So a client need not enter the namespaces, and clusters of root
//! and clusters in a user namespace work the same way. Init ends when its standard input ends. Only its supervisor
//! holds the other end open. Then the kernel kills everything inside and removes the mounts and devices.
//!
//! Each node after the first has an init of its own, in namespaces of its own for network, mounts and host name.

mod children;
mod links;
mod namespaces;
mod nodes;
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

use self::{children::Children, links::Links};
use crate::{
    error::{During, TestClusterError},
    node_number::NodeNumber,
    protocol::READY,
    shape::Shape,
    state::{Layout, lock},
};

/// Runs init for the cluster in `dir` until its standard input ends.
pub(crate) fn run(dir: &Path) -> Result<(), TestClusterError> {
    let layout = Layout::new(dir);
    let record = layout.read()?;
    let _lock = lock(&layout.init_lock())?;
    namespaces::network(NodeNumber::FIRST)?;
    if record.api_servers > 1 {
        namespaces::second_api()?;
    }
    namespaces::mounts(&layout, NodeNumber::FIRST)?;
    if record.shape == Shape::Node {
        namespaces::fixed_sysctls(&layout)?;
        namespaces::device_plugins(&layout, NodeNumber::FIRST)?;
    }
    // Their namespaces begin as copies of these.
    let _nodes = nodes::start(dir, record.nodes)?;
    serve(&layout, Links { node: NodeNumber::FIRST, count: record.nodes })
}

/// Runs the init of the node `name` of the cluster in `dir` until its standard input ends.
pub(crate) fn run_node(dir: &Path, name: &str) -> Result<(), TestClusterError> {
    let layout = Layout::new(dir);
    let count = layout.read()?.nodes;
    let node = NodeNumber::named(name, count);
    let node = node.ok_or_else(|| TestClusterError::Name(format!("the cluster has no node {name:?}")))?;
    namespaces::network(node)?;
    namespaces::mounts(&layout, node)?;
    namespaces::device_plugins(&layout, node)?;
    serve(&layout, Links { node, count })
}

fn serve(layout: &Layout, links: Links) -> Result<(), TestClusterError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.during(|| "start the runtime of init".to_owned())?.block_on(serve_until_eof(layout, links))
}

async fn serve_until_eof(layout: &Layout, links: Links) -> Result<(), TestClusterError> {
    let socket = layout.control_socket_of(links.node);
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
                tokio::spawn(serve::serve(stream, children.clone(), links));
            },
        }
    }
}
