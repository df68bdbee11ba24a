//! `cargo xtask kubernetes`: the versions of Kubernetes whose API has the types that Podward uses.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use podward_images::{cargo, workspace_dir};

use crate::console;

/// The feature of k8s-openapi that the workspace is built with: the oldest supported version.
const OLDEST: &str = "\"v1_33\"";
/// The versions that are checked. In the types of later ones, fields are required that were optional before, so that
/// Podward does not compile although the JSON is the same.
const VERSIONS: [u32; 3] = [33, 34, 35];
/// What the workspace consists of, beside its Cargo.toml.
const PARTS: [&str; 9] =
    [".cargo", "Cargo.lock", "charts", "crates", "deploy", "docker", "docs", "proto", "tests"];

/// Compile Podward with the API types of several versions of Kubernetes
///
/// Podward is built with the types of the oldest version, so that it sends no field that this version does not know. A
/// newer version may have removed a type or a field: then it does not compile with the types of that version.
#[derive(Debug, Args)]
pub(crate) struct Kubernetes {
    /// Minor versions, such as 36 [default: 33, 34 and 35]
    #[arg(value_name = "MINOR")]
    versions: Vec<u32>,
}

impl Kubernetes {
    /// Prints a line for each version. The command fails if Podward does not compile with one of them.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let versions = if self.versions.is_empty() { VERSIONS.to_vec() } else { self.versions };
        let copy = tempfile::tempdir().context("make a folder for the copy of the workspace")?;
        let workspace = workspace_dir();
        for part in PARTS {
            let (from, to) = (workspace.join(part), copy.path().join(part));
            std::os::unix::fs::symlink(&from, &to)
                .with_context(|| format!("link {} to {}", to.display(), from.display()))?;
        }
        let mut all_compile = true;
        for version in versions {
            let compiles = check(&workspace, copy.path(), version).await?;
            println!("Kubernetes 1.{version}: {}", if compiles { "compiles" } else { "DOES NOT COMPILE" });
            all_compile &= compiles;
        }
        Ok(if all_compile { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Compiles the programs of the workspace with the API types of Kubernetes `1.<version>`.
async fn check(workspace: &Path, copy: &Path, version: u32) -> Result<bool> {
    let path = workspace.join("Cargo.toml");
    let manifest = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    ensure!(manifest.contains(OLDEST), "{} does not contain {OLDEST}", path.display());
    let changed = copy.join("Cargo.toml");
    std::fs::write(&changed, manifest.replace(OLDEST, &format!("\"v1_{version}\"")))
        .with_context(|| format!("write {}", changed.display()))?;
    let mut command = cargo();
    command.current_dir(copy).args(["check", "--quiet", "--locked", "--workspace", "--bins", "--target-dir"]);
    command.arg(workspace.join("target/kubernetes"));
    Ok(console::run(&mut command, "cargo").await?.success())
}
