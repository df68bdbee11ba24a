//! `cargo xtask deploy`: renders the Helm chart into files for kubectl and kustomize.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use podward_support::rendered;
use podward_testbed::{Part, Progress, Tools};

/// Write `deploy/podward` from the Helm chart.
#[derive(Debug, Args)]
pub(crate) struct Deploy {}

impl Deploy {
    pub(crate) async fn run(&self) -> Result<ExitCode> {
        let tools = Tools::ensure(&[Part::Helm], &Progress::stderr()).await?;
        let files = rendered::render(&tools.bin("helm"))?;
        let folder = rendered::folder();
        // Files that the chart no longer renders must go.
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        for (name, text) in files {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            println!("{}", path.display());
        }
        Ok(ExitCode::SUCCESS)
    }
}
