//! The programs of another commit, to compare with.

use anyhow::{Context, Result, ensure};
use podward_images::{BuiltPrograms, build_workspace_in, workspace_dir};
use tokio::process::Command;

/// The folder below `target` with a work tree, and the results of builds, for each commit.
const FOLDER: &str = "bench-base";

/// Builds the programs of `commit` in a work tree of its own below `target`. What was built there before is used again.
///
/// # Errors
/// Fails if git does not know the commit, or the build fails.
pub(super) async fn build(commit: &str, profile: &str) -> Result<BuiltPrograms> {
    let id = git(&["rev-parse", "--verify", "--short=12", &format!("{commit}^{{commit}}")]).await?;
    let folder = workspace_dir().join("target").join(FOLDER).join(&id);
    if !folder.exists() {
        let path = folder.to_str().context("the path of the workspace is no UTF-8")?;
        git(&["worktree", "add", "--force", "--detach", path, &id]).await?;
    }
    println!("== build {id} in {}", folder.display());
    Ok(build_workspace_in(&folder, profile).await?)
}

/// Runs git in the workspace, and returns the line that it prints.
async fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).current_dir(workspace_dir()).output().await;
    let output = output.context("start git")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {} failed: {}", arguments.join(" "), error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
