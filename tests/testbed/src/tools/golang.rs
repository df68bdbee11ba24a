//! Compiles the pinned Go programs.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::pins::{BUILD_FLAGS, Program};
use super::{Progress, Step, ToolsError, system};

/// How much of a failed command's output an error shows.
const TAIL: usize = 30;

/// Builds `programs` one after the other into `dir`/bin. Go uses every core for each of them by itself.
pub(super) async fn build(dir: &Path, programs: &[&Program], progress: &Progress) -> Result<(), ToolsError> {
    if programs.is_empty() {
        return Ok(());
    }
    let bin = dir.join("bin");
    std::fs::create_dir_all(&bin).map_err(|e| ToolsError::io("create", &bin, e))?;
    let work = tempfile::Builder::new()
        .prefix("build-")
        .tempdir_in(dir)
        .map_err(|e| ToolsError::io("create a build folder in", dir, e))?;
    for program in programs {
        let module = work.path().join(format!("{}-module", program.name));
        std::fs::create_dir_all(&module).map_err(|e| ToolsError::io("create", &module, e))?;
        for (name, text) in program.module.files() {
            let path = module.join(name);
            std::fs::write(&path, text).map_err(|e| ToolsError::io("write", &path, e))?;
        }
        let step = progress.step(&format!("build {}", program.name), None);
        let output = work.path().join(program.name);
        compile(&module, program, &output, &step).await?;
        let place = bin.join(program.file());
        std::fs::rename(&output, &place).map_err(|e| ToolsError::io("put in place", &place, e))?;
        step.done();
    }
    Ok(())
}

async fn compile(module: &Path, program: &Program, output: &Path, step: &Step) -> Result<(), ToolsError> {
    let go = system::find("go").unwrap_or_else(|| "go".into());
    let mut command = Command::new(go);
    command
        .arg("build")
        .args(BUILD_FLAGS)
        .arg(format!("-ldflags={}", program.module.ldflags()))
        .arg("-o")
        .arg(output)
        .arg(program.package)
        .current_dir(module)
        .env("GOFLAGS", "-mod=readonly")
        // Swept with the folder if the build is killed.
        .env("GOTMPDIR", module)
        .env("GOWORK", "off")
        .env("CGO_ENABLED", "0")
        .env_remove("GOOS")
        .env_remove("GOARCH");
    let shown = match program.package {
        "." => format!("go build {}", program.name),
        package => format!("go build {package}"),
    };
    let advice = "if a download failed, check the network and GOPROXY (`go env GOPROXY`), then run the same again: \
                  what is built already is kept";
    run(command, &format!("building {}", program.name), &shown, advice, step).await
}

/// Runs `command` to its end, showing its latest line of output beside the step.
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
