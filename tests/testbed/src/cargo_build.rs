//! Builds this workspace's own programs, for images and for the bed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

mod flags;

/// Everything but the task runner, which may be what is running.
const WORKSPACE: [&str; 3] = ["--workspace", "--exclude", "xtask"];

/// Why a program could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Cargo could not be run.
    #[error("cannot run `{command}`; is cargo on the PATH?")]
    Start {
        /// The command line.
        command: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Cargo ended with a failure; what it said is on the standard error.
    #[error("`{command}` failed ({status}); its messages are above")]
    Failed {
        /// The command line.
        command: String,
        /// The exit status.
        status: String,
    },
    /// Cargo built no program of that name.
    #[error("`{command}` built no program called {bin}")]
    NoProgram {
        /// The command line.
        command: String,
        /// The program's name.
        bin: String,
    },
}

/// Programs that were built, by name.
#[derive(Debug, Clone)]
pub struct Programs {
    command: String,
    by_name: BTreeMap<String, PathBuf>,
}

impl Programs {
    /// Where the program `name` is.
    ///
    /// # Errors
    /// When there is no such program in the workspace.
    pub fn path(&self, name: &str) -> Result<PathBuf, BuildError> {
        self.by_name
            .get(name)
            .cloned()
            .ok_or_else(|| BuildError::NoProgram { command: self.command.clone(), bin: name.to_owned() })
    }
}

/// Builds the programs of `packages` in `profile` (`dev`, `release`, `bench-lite`), each as one static file that runs in an image
/// with nothing else in it.
///
/// The same sources give the same programs in every folder, except in the profile `dev`: there they are those of a plain build, which are
/// static, too (`.cargo/config.toml`).
///
/// # Errors
/// When cargo can't be run or fails.
pub async fn build_for_images(packages: &[&str], profile: &str) -> Result<Programs, BuildError> {
    // An environment's flags would take the place of those that make programs static.
    let without = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"];
    if profile == "dev" {
        return cargo_build(&[&WORKSPACE[..], &["--bins"]].concat(), &without).await;
    }
    let target = flags::target();
    let flags = serde_json::Value::from(flags::without_folders().await?);
    let flags = format!("target.{target}.rustflags={flags}");
    let mut arguments = vec!["--bins", "--profile", profile, "--target", &target, "--config", &flags];
    arguments.extend(packages.iter().flat_map(|package| ["--package", *package]));
    cargo_build(&arguments, &without).await
}

/// Builds the program `bin` in `profile` for this machine, and tells where it is.
///
/// # Errors
/// When cargo can't be run or fails.
pub async fn build_program(bin: &str, profile: &str) -> Result<PathBuf, BuildError> {
    // Of the whole workspace, as below: for one package alone dependencies would get other features, and be compiled anew.
    cargo_build(&[&WORKSPACE[..], &["--bin", bin, "--profile", profile]].concat(), &[]).await?.path(bin)
}

/// Builds every program of the workspace but the task runner in `profile`.
///
/// # Errors
/// When cargo can't be run or fails.
pub async fn build_workspace(profile: &str) -> Result<Programs, BuildError> {
    cargo_build(&[&WORKSPACE[..], &["--bins", "--profile", profile]].concat(), &[]).await
}

/// The folder of the workspace that this crate was compiled in.
pub fn workspace_dir() -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir.ancestors().nth(2).unwrap_or(crate_dir).to_owned()
}

/// The `cargo` that this program was started with, in the workspace's folder.
///
/// What cargo tells a program that it runs of that program's package is left out: build scripts (ring's is one) run anew when it
/// differs, and what needs their crates is compiled anew. So a build within `cargo xtask` or `cargo test` would undo that of a plain
/// `cargo build`, and the other way round.
#[must_use]
pub fn cargo() -> Command {
    // Set by cargo for what it runs; it is the cargo of the pinned toolchain.
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of_this| name.to_string_lossy().starts_with(of_this))
        {
            command.env_remove(name);
        }
    }
    command.current_dir(workspace_dir()).kill_on_drop(true);
    command
}

async fn cargo_build(arguments: &[&str], without: &[&str]) -> Result<Programs, BuildError> {
    let shown = format!("cargo build {}", arguments.join(" "));
    let start = |source| BuildError::Start { command: shown.clone(), source };
    let mut command = cargo();
    for variable in without {
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
        // Not `output` of the command, which would take the standard error too.
        .wait_with_output()
        .await
        .map_err(start)?;
    if !output.status.success() {
        return Err(BuildError::Failed { command: shown, status: output.status.to_string() });
    }
    let by_name = String::from_utf8_lossy(&output.stdout).lines().filter_map(executable).collect();
    Ok(Programs { command: shown, by_name })
}

/// Name and path of the program that a line of cargo's messages (The Cargo Book, "External tools", "Artifact
/// Messages") announces.
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
    fn only_programs_are_taken_from_the_messages() {
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

    #[test]
    fn the_workspace_is_where_the_lock_file_is() {
        assert!(workspace_dir().join("Cargo.lock").exists());
    }
}
