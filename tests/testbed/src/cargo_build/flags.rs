//! The compiler's flags for programs that are the same wherever they are built.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{BuildError, cargo, workspace_dir};

/// What the folders of a build are called in programs: by the names that they have in `docker/Dockerfile`, where nothing has to be
/// renamed.
const WORKSPACE: &str = "/src";
const CARGO_HOME: &str = "/usr/local/cargo";
const TARGET: &str = "/src/target";

/// The target of programs for images. It is named for their results to be apart from those of builds with other flags.
pub(super) fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// The flags for programs that don't tell where they were built; that they are static is in `.cargo/config.toml`.
///
/// Panics name the files that they happened in, so a program would differ from one that was built elsewhere. Programs of the profile
/// `dev` may: debuggers look for their sources there.
pub(super) async fn without_folders() -> Result<Vec<String>, BuildError> {
    let renamed = [
        (workspace_dir(), WORKSPACE.to_owned()),
        (cargo_home(), CARGO_HOME.to_owned()),
        (target_dir().await?, TARGET.to_owned()),
        sources_of_std().await?,
    ];
    Ok(renamed.iter().map(|(folder, name)| renaming(folder, name)).collect())
}

/// Of several that fit a file the compiler takes the last.
fn renaming(folder: &Path, name: &str) -> String {
    format!("--remap-path-prefix={}={name}", folder.display())
}

/// Where cargo has the sources of dependencies.
fn cargo_home() -> PathBuf {
    let home = || std::env::home_dir().unwrap_or_default().join(".cargo");
    std::env::var_os("CARGO_HOME").map_or_else(home, |set| workspace_dir().join(set))
}

/// Where generated sources are.
async fn target_dir() -> Result<PathBuf, BuildError> {
    let said = said(cargo(), &["metadata", "--no-deps", "--format-version=1"]).await?;
    let metadata: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
    Ok(metadata["target_directory"].as_str().map_or_else(|| workspace_dir().join("target"), PathBuf::from))
}

/// Where the standard library's sources are with the component `rust-src`, which makes the compiler name them, and the name that they
/// have without it.
async fn sources_of_std() -> Result<(PathBuf, String), BuildError> {
    let rustc = || {
        let program = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
        let mut command = tokio::process::Command::new(program);
        command.current_dir(workspace_dir());
        command
    };
    let sysroot = said(rustc(), &["--print=sysroot"]).await?;
    let version = said(rustc(), &["--version", "--verbose"]).await?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: ")).unwrap_or("unknown");
    Ok((Path::new(sysroot.trim()).join("lib/rustlib/src/rust"), format!("/rustc/{commit}")))
}

/// What a command that only reports prints.
async fn said(mut command: tokio::process::Command, arguments: &[&str]) -> Result<String, BuildError> {
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
    async fn programs_name_no_folder_of_this_machine() {
        let flags = without_folders().await.expect("flags");
        let renamed = |folder: &Path, name: &str| flags.contains(&renaming(folder, name));
        assert!(renamed(&workspace_dir(), "/src"), "{flags:?}");
        assert!(renamed(&cargo_home(), "/usr/local/cargo"), "{flags:?}");
        let (std, name) = sources_of_std().await.expect("the compiler's folder");
        assert!(std.is_absolute() && name.len() > "/rustc/".len() + 7, "{name}");
        // The folder of results is often below the workspace: its name has to come later.
        let place = |flag: String| flags.iter().position(|other| *other == flag);
        let target = renaming(&target_dir().await.expect("a folder"), "/src/target");
        assert!(place(target.clone()) > place(renaming(&workspace_dir(), "/src")), "{flags:?} {target}");
    }
}
