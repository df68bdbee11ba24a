//! `cargo xtask kubernetes`: the versions of Kubernetes whose API has the types that Podward uses.

mod fields;
mod rust_files;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use podward_images::{cargo, workspace_dir};
use serde_json::Value;

use crate::console;
use fields::{ApiFields, Missing};
use rust_files::rust_files;

/// The feature of k8s-openapi that the workspace is built with: the oldest supported version.
const OLDEST: &str = "\"v1_33\"";
/// The minor version that the workspace is built with.
const BUILT_WITH: u32 = 33;
/// The versions that are checked.
const VERSIONS: [u32; 5] = [33, 34, 35, 36, 37];
/// The last version with whose types Podward compiles. In those of later ones other fields are optional, although the JSON is
/// the same.
const LAST_COMPILED: u32 = 35;
/// What the workspace consists of, beside its Cargo.toml.
const PARTS: [&str; 9] =
    [".cargo", "Cargo.lock", "charts", "crates", "deploy", "docker", "docs", "proto", "tests"];

/// Check the types and fields that Podward uses against the APIs of several versions of Kubernetes
///
/// Podward is built with the types of the oldest version, so that it sends no field that this version does not know. Newer
/// versions must have all types and fields of the oldest one that occur in Podward's sources. Besides, Podward is compiled with
/// the types of versions up to 1.35.
#[derive(Debug, Args)]
pub(crate) struct Kubernetes {
    /// Minor versions, such as 36 [default: 33 to 37]
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
        let types = types_folder().await?;
        let oldest = ApiFields::read(&types.join(format!("v1_{BUILT_WITH}")))?;
        let sources: Vec<String> =
            rust_files(&workspace.join("crates"))?.into_iter().map(|(_, text)| text).collect();
        let mut all_fit = true;
        for version in versions {
            let newer = ApiFields::read(&types.join(format!("v1_{version}")))
                .with_context(|| format!("read the types of Kubernetes 1.{version}"))?;
            let mut used = oldest.missing_in(&newer);
            used.retain(|missing| {
                [missing.module().as_str(), missing.word()].iter().all(|word| is_used(&sources, word))
            });
            let compiles = match version <= LAST_COMPILED {
                true => Some(check(&workspace, copy.path(), version).await?),
                false => None,
            };
            println!("Kubernetes 1.{version}: {}", verdict(compiles, &used));
            all_fit &= compiles != Some(false) && used.is_empty();
        }
        Ok(if all_fit { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Returns the text about a version.
fn verdict(compiles: Option<bool>, lacks: &[Missing]) -> String {
    let compiles = match compiles {
        Some(true) => "compiles; ",
        Some(false) => "DOES NOT COMPILE; ",
        None => "",
    };
    let lacks: Vec<String> = lacks.iter().map(ToString::to_string).collect();
    match lacks.is_empty() {
        true => format!("{compiles}has all types and fields that are used"),
        false => format!("{compiles}LACKS {}", lacks.join(", ")),
    }
}

/// Returns whether a word occurs in the sources.
fn is_used(sources: &[String], word: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let occurs = |text: &String| {
        text.match_indices(word)
            .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part))
    };
    sources.iter().any(occurs)
}

/// Returns the folder of the sources of k8s-openapi.
async fn types_folder() -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["metadata", "--locked", "--format-version=1"]);
    let output = command.output().await.context("run cargo metadata")?;
    let metadata: Value =
        serde_json::from_slice(&output.stdout).context("parse the output of cargo metadata")?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let types = packages.iter().find(|package| package["name"] == "k8s-openapi");
    let manifest = types.and_then(|package| package["manifest_path"].as_str());
    let manifest = manifest.context("the workspace does not depend on k8s-openapi")?;
    Ok(Path::new(manifest).with_file_name("src"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_used_as_a_whole() {
        let sources = ["let a = pod.workload_reference;".to_owned(), "Foo::Bar".to_owned()];
        assert!(is_used(&sources, "workload_reference") && is_used(&sources, "Bar"));
        assert!(!is_used(&sources, "workload_ref") && !is_used(&sources, "reference"));
    }
}
