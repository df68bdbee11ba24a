//! `cargo xtask cycles`: import cycles between the files of a crate.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use podward_images::{cargo, workspace_dir};
use serde::Deserialize;

use crate::import_cycles;

/// Report import cycles between the files of a crate.
#[derive(Debug, Args)]
pub(crate) struct Cycles {
    /// Check only these packages; all packages of the workspace if none is named
    #[arg(value_name = "PACKAGE")]
    packages: Vec<String>,
}

#[derive(Deserialize)]
struct CargoMetadata {
    packages: Vec<CargoPackage>,
}

#[derive(Deserialize)]
struct CargoPackage {
    name: String,
    targets: Vec<CargoTarget>,
}

#[derive(Deserialize)]
struct CargoTarget {
    kind: Vec<String>,
    src_path: String,
}

impl Cycles {
    /// Prints the cycles. The command fails if there are any.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let found = report(&self.packages).await?;
        Ok(if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Prints the import cycles of `packages`, or of all packages if none is named, and returns their number.
pub(super) async fn report(packages: &[String]) -> Result<usize> {
    let workspace = workspace_dir();
    let mut known = metadata().await?.packages;
    for name in packages {
        ensure!(known.iter().any(|package| package.name == *name), "the workspace has no package {name}");
    }
    known.retain(|package| packages.is_empty() || packages.contains(&package.name));
    let (mut crates, mut found) = (0, 0);
    for package in known {
        let programs_and_libraries = package
            .targets
            .iter()
            .filter(|target| target.kind.iter().any(|kind| kind == "lib" || kind == "bin"));
        for target in programs_and_libraries {
            let root = Path::new(&target.src_path);
            let root = root.strip_prefix(&workspace).unwrap_or(root);
            let read = |path: &Path| std::fs::read_to_string(workspace.join(path));
            let cycles = import_cycles::find(root, &read)
                .with_context(|| format!("find the import cycles of {}", package.name))?;
            for cycle in &cycles {
                println!("{}: {cycle}", package.name);
            }
            crates += 1;
            found += cycles.len();
        }
    }
    println!("{found} import cycles in {crates} programs and libraries");
    Ok(found)
}

async fn metadata() -> Result<CargoMetadata> {
    let mut command = cargo();
    command.args(["metadata", "--no-deps", "--format-version=1"]);
    let output = command.output().await.context("run cargo metadata")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed ({}): {}", output.status, errors.trim());
    serde_json::from_slice(&output.stdout).context("parse the output of cargo metadata")
}
