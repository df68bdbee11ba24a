//! `cargo xtask images`: OCI archives, written without any container tool.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use podward_support::DemoImages;
use podward_testbed::{Progress, workspace_dir};

/// Write container images of this workspace's programs as OCI archives.
#[derive(Debug, Args)]
pub(crate) struct Images {
    /// The folder to write them to [default: target/images]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

impl Images {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let output = self.output.unwrap_or_else(|| workspace_dir().join("target/images"));
        std::fs::create_dir_all(&output).with_context(|| format!("cannot create {}", output.display()))?;

        let step = Progress::stderr().step("build the demo server as a static program", None);
        let images = DemoImages::default().build("release").await?;
        step.done();
        for (image, version) in images.iter().zip(["v1", "v2"]) {
            let archive = output.join(format!("demo-server-{version}.tar"));
            let digest = image.write(&archive)?;
            println!("{}  {}  {digest}", archive.display(), image.name());
        }
        Ok(ExitCode::SUCCESS)
    }
}
