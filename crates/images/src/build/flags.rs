//! The compiler flags that make programs independent of the folder they are built in.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::error::BuildError;
use crate::cargo::{cargo, workspace_dir};

// The names of the build's folders in programs. They are the folders of `docker/Dockerfile`, which needs no renaming.
const WORKSPACE: &str = "/src";
const CARGO_HOME: &str = "/usr/local/cargo";
const TARGET: &str = "/src/target";

/// Returns the target triple of programs for images. An explicit target separates their results from those of builds
/// with other flags.
pub(super) fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Returns the flags that remove this machine's folders from programs. The flags that make programs static are in
/// `.cargo/config.toml`.
///
/// Panic messages name source files, so programs that were built in different folders differ. Programs of the profile
/// `dev` keep these names, because debuggers look for the sources there.
pub(super) async fn remap_flags() -> Result<Vec<String>, BuildError> {
    let renamed = [
        (workspace_dir(), WORKSPACE.to_owned()),
        (cargo_home(), CARGO_HOME.to_owned()),
        (target_dir().await?, TARGET.to_owned()),
        std_sources().await?,
    ];
    Ok(renamed.iter().map(|(folder, name)| remap_flag(folder, name)).collect())
}

/// Returns the flag that renames `folder`. If several flags match a file, the compiler uses the last one.
fn remap_flag(folder: &Path, name: &str) -> String {
    format!("--remap-path-prefix={}={name}", folder.display())
}

/// Returns the folder that contains the sources of dependencies.
fn cargo_home() -> PathBuf {
    let home = || std::env::home_dir().unwrap_or_default().join(".cargo");
    std::env::var_os("CARGO_HOME").map_or_else(home, |set| workspace_dir().join(set))
}

/// Returns the folder that contains generated sources.
async fn target_dir() -> Result<PathBuf, BuildError> {
    let output = output_of(cargo(), &["metadata", "--no-deps", "--format-version=1"]).await?;
    let metadata: serde_json::Value = serde_json::from_str(&output).unwrap_or_default();
    Ok(metadata["target_directory"].as_str().map_or_else(|| workspace_dir().join("target"), PathBuf::from))
}

/// Returns the folder of the standard library's sources and the name that replaces it. With the component `rust-src`
/// the compiler writes the folder into programs, without it the name.
async fn std_sources() -> Result<(PathBuf, String), BuildError> {
    let rustc = || {
        let program = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
        let mut command = tokio::process::Command::new(program);
        command.current_dir(workspace_dir());
        command
    };
    let sysroot = output_of(rustc(), &["--print=sysroot"]).await?;
    let version = output_of(rustc(), &["--version", "--verbose"]).await?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: ")).unwrap_or("unknown");
    Ok((Path::new(sysroot.trim()).join("lib/rustlib/src/rust"), format!("/rustc/{commit}")))
}

/// Runs a command and returns its standard output.
async fn output_of(mut command: tokio::process::Command, arguments: &[&str]) -> Result<String, BuildError> {
    command.args(arguments);
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let shown = format!("{program} {}", arguments.join(" "));
    let output =
        command.output().await.map_err(|source| BuildError::Start { command: shown.clone(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    Err(BuildError::Failed { command: shown, status: output.status.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn programs_contain_no_folder_of_this_machine() {
        let flags = remap_flags().await.expect("flags");
        let renamed = |folder: &Path, name: &str| flags.contains(&remap_flag(folder, name));
        assert!(renamed(&workspace_dir(), "/src"), "{flags:?}");
        assert!(renamed(&cargo_home(), "/usr/local/cargo"), "{flags:?}");
        let (std, name) = std_sources().await.expect("the compiler's folder");
        assert!(std.is_absolute() && name.len() > "/rustc/".len() + 7, "{name}");
        // The target folder is often below the workspace, so its flag has to come later.
        let place = |flag: String| flags.iter().position(|other| *other == flag);
        let target = remap_flag(&target_dir().await.expect("a folder"), "/src/target");
        assert!(place(target.clone()) > place(remap_flag(&workspace_dir(), "/src")), "{flags:?} {target}");
    }
}
