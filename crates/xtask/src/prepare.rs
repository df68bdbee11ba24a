//! Prepares this machine for a test cluster.

use std::path::PathBuf;

use anyhow::{Result, bail};
use podward_images::build_program;
use podward_testbed::{Part, Progress, Tools, ToolsError, preflight};

/// The programs that a test cluster is started with.
#[derive(Debug)]
pub(crate) struct PreparedTestCluster {
    /// The programs that run in the cluster.
    pub(crate) tools: Tools,
    /// The program `podward-testbed`, which supervises the cluster.
    pub(crate) supervisor: PathBuf,
}

/// Checks the machine, and builds the missing programs of `parts` and the supervisor. `node` is true if the cluster has
/// a real node.
///
/// # Errors
/// When the machine lacks something that the cluster needs; the error lists everything, and nothing is built. When a
/// build fails.
pub(crate) async fn test_cluster(parts: &[Part], node: bool) -> Result<PreparedTestCluster> {
    let missing = preflight(parts, node);
    if !missing.is_empty() {
        bail!(ToolsError::Missing(missing));
    }
    let progress = Progress::stderr();
    let tools = Tools::ensure(parts, &progress).await?;
    let step = progress.step("build the supervisor of test clusters", None);
    let supervisor = build_program("podward-testbed", "dev").await?;
    step.done();
    Ok(PreparedTestCluster { tools, supervisor })
}
