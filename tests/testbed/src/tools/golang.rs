//! Compiles the pinned Go programs.

use std::path::Path;

use tokio::process::Command;

use super::command::{run, work_folder};
use super::error::ToolsError;
use super::pins::{BUILD_FLAGS, Program};
use super::progress::{Progress, Step};
use super::system;

/// Builds `programs` one after the other into `dir`/bin. Each build uses all cores.
pub(super) async fn build(dir: &Path, programs: &[&Program], progress: &Progress) -> Result<(), ToolsError> {
    if programs.is_empty() {
        return Ok(());
    }
    let bin = dir.join("bin");
    std::fs::create_dir_all(&bin).map_err(|e| ToolsError::io("create", &bin, e))?;
    let work = work_folder(dir)?;
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
        .arg(format!("-tags={}", program.module.tags()))
        .arg("-o")
        .arg(output)
        .arg(program.package)
        .current_dir(module)
        .env("GOFLAGS", "-mod=readonly")
        // Removed with the folder if the build is killed.
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
