//! Compiles the servers that are published as Rust crates.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use super::command::{run, work_folder};
use super::error::ToolsError;
use super::part::Part;
use super::progress::Progress;
use super::system;

/// Nacos itself is not published where programs are fetched from. This server has the HTTP interface of Nacos 1.
const NAME: &str = "rnacos";
const VERSION: &str = "0.8.8";
pub(super) const STEP: &str = "build rnacos";
pub(super) const EXPECTED: Duration = Duration::from_secs(400);

/// Returns the path of the program `name` in the cache folder, if it is one of these.
pub(super) fn path(dir: &Path, name: &str) -> Option<PathBuf> {
    (name == NAME).then(|| dir.join("bin").join(format!("{NAME}-{VERSION}")))
}

/// Returns true if the programs of `part` are in `dir`.
pub(super) fn is_built(dir: &Path, part: Part) -> bool {
    part != Part::Nacos || path(dir, NAME).is_some_and(|path| path.exists())
}

/// Builds the program into `dir`, without optimization, which would take three times as long.
pub(super) async fn build(dir: &Path, progress: &Progress) -> Result<(), ToolsError> {
    let step = progress.step(STEP, None);
    let bin = dir.join("bin");
    std::fs::create_dir_all(&bin).map_err(|e| ToolsError::io("create", &bin, e))?;
    let work = work_folder(dir)?;
    let cargo = system::find("cargo").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["install", "--debug", "--locked", "--no-track", "--version", VERSION, NAME, "--root"])
        .arg(work.path())
        .current_dir(work.path())
        .env("CARGO_TARGET_DIR", work.path().join("target"))
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .env("CARGO_INCREMENTAL", "0")
        .env_remove("CARGO_BUILD_TARGET")
        .env_remove("RUSTFLAGS");
    let shown = format!("cargo install --locked --version {VERSION} {NAME}");
    let advice = "if a download failed, check the network and Cargo's settings, then run the same again";
    run(command, "building rnacos", &shown, advice, &step).await?;
    let place = bin.join(format!("{NAME}-{VERSION}"));
    let built = work.path().join("bin").join(NAME);
    std::fs::rename(built, &place).map_err(|e| ToolsError::io("put in place", &place, e))?;
    step.done();
    Ok(())
}
