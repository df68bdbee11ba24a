//! `cargo xtask crds`: the custom resource definitions, from their Rust types.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use kube::ResourceExt;
use podward_testbed::workspace_dir;

const HEAD: &str = "# Written by `cargo xtask crds` from the types in crates/api. Changes belong there.\n";

/// Write `deploy/crds` from the types in `crates/api`.
#[derive(Debug, Args)]
pub(crate) struct Crds {}

impl Crds {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let folder = workspace_dir().join("deploy/crds");
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        for crd in podward_api::crds() {
            let name = crd.name_any();
            let text =
                serde_saphyr::to_string(&crd).with_context(|| format!("cannot write {name} as YAML"))?;
            let path = folder.join(format!("{name}.yaml"));
            fs::write(&path, format!("{HEAD}{text}"))
                .with_context(|| format!("cannot write {}", path.display()))?;
            println!("{}", path.display());
        }
        Ok(ExitCode::SUCCESS)
    }
}
