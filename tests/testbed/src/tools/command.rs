//! Runs the commands of builds.

use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::error::ToolsError;
use super::progress::Step;

/// The number of output lines of a failed command in an error.
const TAIL: usize = 30;

/// Makes a folder in `dir` for a step that builds or fetches something, removed when it is dropped. What a killed build leaves
/// is found by this prefix.
pub(super) fn work_folder(dir: &Path) -> Result<TempDir, ToolsError> {
    let made = tempfile::Builder::new().prefix("build-").tempdir_in(dir);
    made.map_err(|e| ToolsError::io("create a build folder in", dir, e))
}

/// Runs `command` to its end and shows its latest line of output beside the step.
pub(super) async fn run(
    mut command: Command,
    what: &str,
    shown: &str,
    advice: &'static str,
    step: &Step,
) -> Result<(), ToolsError> {
    let start = |source| ToolsError::Start { command: shown.to_owned(), source };
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(start)?;
    let mut tail = std::collections::VecDeque::with_capacity(TAIL);
    if let Some(stderr) = child.stderr.take() {
        let mut lines = BufReader::new(stderr).lines();
        while let Some(line) = lines.next_line().await.map_err(start)? {
            step.detail(&line);
            if tail.len() == TAIL {
                tail.pop_front();
            }
            tail.push_back(line);
        }
    }
    let status = child.wait().await.map_err(start)?;
    if status.success() {
        return Ok(());
    }
    Err(ToolsError::Command {
        what: what.to_owned(),
        command: shown.to_owned(),
        status: status.to_string(),
        output: Vec::from(tail).join("\n"),
        advice,
    })
}
