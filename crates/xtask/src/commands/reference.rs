//! `cargo xtask reference`: the API reference in `docs/reference`, from the resource definitions and the proto files.

mod grpc;
mod markdown;
mod resources;

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use podward_images::workspace_dir;

const RESOURCES: &str = "docs/reference/api-resources.md";
const GRPC: &str = "docs/reference/api-grpc.md";

/// Write the API reference in `docs/reference` from the types in `crates/api` and the files in `proto`
#[derive(Debug, Args)]
pub(crate) struct Reference {}

impl Reference {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        for (path, text) in pages()? {
            let file = workspace_dir().join(path);
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
            println!("{}", file.display());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the path of each page in the workspace, and its text.
fn pages() -> Result<[(&'static str, String); 2]> {
    let crds = [podward_api::crds(), vec![podward_api::clone_set_crd()]].concat();
    let resources = resources::page(&crds);
    let grpc =
        grpc::page(podward_proto::FILE_DESCRIPTOR_SET).context("cannot read the proto files' descriptors")?;
    Ok([(RESOURCES, resources), (GRPC, grpc)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_in_docs_are_what_the_generator_writes() {
        for (path, text) in pages().unwrap() {
            let written = fs::read_to_string(workspace_dir().join(path)).unwrap_or_default();
            let line = text.lines().zip(written.lines()).find(|(new, old)| new != old);
            assert!(written == text, "run `cargo xtask reference`: {path} differs, first at {line:?}");
        }
    }
}
