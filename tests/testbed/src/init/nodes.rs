//! The namespaces of the nodes after the first. Each has an init of its own, which serves a control socket of its own.
//! It is a child of PID 1 and ends with it.

use std::{
    io::{BufRead, BufReader, Error},
    path::Path,
    process::{Child, Command, Stdio},
};

use super::links;
use crate::{
    error::{During, TestClusterError},
    node_number::NodeNumber,
    protocol::READY,
};

/// Makes the namespaces of all nodes but the first, and the links between all nodes. Returns the inits of the nodes;
/// each ends when its value is dropped.
pub(super) fn start(dir: &Path, count: usize) -> Result<Vec<Child>, TestClusterError> {
    let program = std::env::current_exe().during(|| "find the program of init".to_owned())?;
    let mut started = Vec::new();
    for node in NodeNumber::all(count).skip(1) {
        let mut command = Command::new("unshare");
        command.args(["-n", "-m", "-u", "--propagation", "private", "--"]);
        command.arg(&program).arg("node").arg(dir).arg(node.name());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().during(|| format!("make the namespaces of {}", node.name()))?;
        started.push((node, child));
    }
    for (node, child) in &mut started {
        until_ready(child).during(|| format!("prepare the namespaces of {}", node.name()))?;
    }
    let own = (NodeNumber::FIRST, std::process::id());
    let nodes: Vec<_> =
        std::iter::once(own).chain(started.iter().map(|(node, child)| (*node, child.id()))).collect();
    links::make(&nodes).during(|| "connect the nodes with `ip` (package iproute2)".to_owned())?;
    Ok(started.into_iter().map(|(_, child)| child).collect())
}

fn until_ready(child: &mut Child) -> std::io::Result<()> {
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    if line.trim() == READY { Ok(()) } else { Err(Error::other("its init ended; init.log says why")) }
}
