//! Builds the programs of this workspace with cargo.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tokio::sync::OnceCell;

use crate::cargo::{cargo, workspace_dir};

mod error;
mod flags;

pub use error::BuildError;

/// All packages except the task runner, which may be the program that is running.
const WORKSPACE: [&str; 3] = ["--workspace", "--exclude", "xtask"];

/// The builds of this process, by the arguments. Tests run some programs hundreds of times, and cargo takes a second to find
/// that nothing has changed.
static BUILDS: LazyLock<Mutex<HashMap<String, Arc<OnceCell<BuiltPrograms>>>>> = LazyLock::new(Mutex::default);

/// The programs of one build, by name.
#[derive(Debug, Clone)]
pub struct BuiltPrograms {
    command: String,
    by_name: BTreeMap<String, PathBuf>,
}

impl BuiltPrograms {
    /// Returns the path of the program `name`.
    ///
    /// # Errors
    /// Fails if the build has no program of this name.
    pub fn path(&self, name: &str) -> Result<PathBuf, BuildError> {
        self.by_name
            .get(name)
            .cloned()
            .ok_or_else(|| BuildError::NoProgram { command: self.command.clone(), bin: name.to_owned() })
    }
}

/// Builds the programs of `packages` in the cargo profile `profile` (`dev`, `release`, `bench-lite`). Each program is
/// one static file that runs in an image that contains nothing else.
///
/// The same sources give the same programs in every folder, except in the profile `dev`: this profile uses the results
/// of a plain build, which are static, too (`.cargo/config.toml`). A process builds the same programs once.
///
/// # Errors
/// Fails if cargo cannot be run or fails.
pub async fn build_for_images(packages: &[&str], profile: &str) -> Result<BuiltPrograms, BuildError> {
    // RUSTFLAGS of the environment replace the configured flags that make programs static.
    let unset = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"];
    if profile == "dev" {
        return cargo_build(&[&WORKSPACE[..], &["--bins"]].concat(), &unset).await;
    }
    let target = flags::target();
    let flags = serde_json::Value::from(flags::remap_flags().await?);
    let flags = format!("target.{target}.rustflags={flags}");
    let mut arguments = vec!["--bins", "--profile", profile, "--target", &target, "--config", &flags];
    arguments.extend(packages.iter().flat_map(|package| ["--package", *package]));
    cargo_build(&arguments, &unset).await
}

/// Builds the program `bin` in `profile` for this machine, once in each process, and returns its path.
///
/// # Errors
/// Fails if cargo cannot be run or fails.
pub async fn build_program(bin: &str, profile: &str) -> Result<PathBuf, BuildError> {
    // The whole workspace is selected: for a single package, dependencies have other features and are compiled again.
    cargo_build(&[&WORKSPACE[..], &["--bin", bin, "--profile", profile]].concat(), &[]).await?.path(bin)
}

/// Builds every program of the workspace, except the task runner, in `profile`.
///
/// # Errors
/// Fails if cargo cannot be run or fails.
pub async fn build_workspace(profile: &str) -> Result<BuiltPrograms, BuildError> {
    build_workspace_in(&workspace_dir(), profile).await
}

/// As [`build_workspace`], of the workspace in the folder `dir`, such as one of another commit.
///
/// # Errors
/// Fails if cargo cannot be run or fails.
pub async fn build_workspace_in(dir: &Path, profile: &str) -> Result<BuiltPrograms, BuildError> {
    let mut command = cargo();
    command.current_dir(dir);
    run_build(command, &[&WORKSPACE[..], &["--bins", "--profile", profile]].concat(), &[]).await
}

/// Runs `cargo build` with `arguments`, without the environment variables `unset`, unless this process has done so.
async fn cargo_build(arguments: &[&str], unset: &[&str]) -> Result<BuiltPrograms, BuildError> {
    let key = format!("{arguments:?} {unset:?}");
    let build = BUILDS.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
    build.get_or_try_init(|| run_build(cargo(), arguments, unset)).await.cloned()
}

async fn run_build(
    mut command: tokio::process::Command,
    arguments: &[&str],
    unset: &[&str],
) -> Result<BuiltPrograms, BuildError> {
    let shown = format!("cargo build {}", arguments.join(" "));
    let start = |source| BuildError::Start { command: shown.clone(), source };
    for variable in unset {
        command.env_remove(variable);
    }
    let output = command
        .args(["build", "--quiet", "--message-format=json-render-diagnostics"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(start)?
        // `Command::output` captures the standard error, too.
        .wait_with_output()
        .await
        .map_err(start)?;
    if !output.status.success() {
        return Err(BuildError::Failed { command: shown, status: output.status.to_string() });
    }
    let by_name = String::from_utf8_lossy(&output.stdout).lines().filter_map(executable).collect();
    Ok(BuiltPrograms { command: shown, by_name })
}

/// Returns the name and path of the program that a line of cargo's messages announces (The Cargo Book, "External
/// tools", "Artifact Messages"). Returns `None` for every other line.
fn executable(line: &str) -> Option<(String, PathBuf)> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let path = message.get("executable")?.as_str()?;
    let name = message.get("target")?.get("name")?.as_str()?;
    Some((name.to_owned(), path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_about_programs_are_used() {
        let program = r#"{"reason":"compiler-artifact","target":{"name":"server"},"executable":"/t/server"}"#;
        assert_eq!(executable(program), Some(("server".to_owned(), "/t/server".into())));
        for other in [
            r#"{"reason":"compiler-artifact","target":{"name":"core"},"executable":null}"#,
            r#"{"reason":"build-finished","success":true}"#,
            "not json",
        ] {
            assert_eq!(executable(other), None, "{other}");
        }
    }
}
