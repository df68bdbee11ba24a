//! What has to be there before a test bed can start.

use std::path::PathBuf;

use anyhow::{Result, bail};
use podward_testbed::{Part, Progress, Tools, ToolsError, build_program, preflight};

/// What a bed is started with.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The programs that it runs.
    pub(crate) tools: Tools,
    /// The program `podward-testbed`.
    pub(crate) keeper: PathBuf,
}

/// Checks the machine, builds the programs of `parts` that aren't there yet, and the keeper of beds. `node` says whether
/// the bed has a real node.
///
/// # Errors
/// With everything that the machine lacks, before anything is built; or when a build fails.
pub(crate) async fn bed(parts: &[Part], node: bool) -> Result<Prepared> {
    let missing = preflight(parts, node);
    if !missing.is_empty() {
        bail!(ToolsError::Missing(missing));
    }
    let progress = Progress::stderr();
    let tools = Tools::ensure(parts, &progress).await?;
    let step = progress.step("build the keeper of test beds", None);
    let keeper = build_program("podward-testbed", "dev").await?;
    step.done();
    Ok(Prepared { tools, keeper })
}
