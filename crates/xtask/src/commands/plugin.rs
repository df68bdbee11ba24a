//! `cargo xtask plugin`: packs the plugin of kubectl for krew.

mod archive;
mod manifest;
mod static_program;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use podward_images::{architecture, build_for_images, workspace_dir};
use podward_testbed::Progress;

use archive::{ARCHITECTURES, PROGRAM};
use manifest::{BaseUrl, Manifest};

/// Pack the plugin of kubectl as an archive, and write the manifest by which krew installs it.
///
/// The program is static, and that of this machine's architecture. The manifest has a platform for each archive of this
/// version in the folder: run the command on an amd64 machine, and then on an arm64 machine with a copy of the folder.
/// Publish all files of the folder at the URL.
#[derive(Debug, Args)]
pub(crate) struct Plugin {
    /// Folder of the archives and the manifest [default: target/plugin]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// URL of the folder from which users download the archives, https://HOST/PATH
    #[arg(long)]
    url: BaseUrl,
    /// Cargo profile of the program
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
}

impl Plugin {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let architecture = architecture();
        // Checked before the build, which takes minutes.
        ensure!(
            ARCHITECTURES.contains(&architecture),
            "the plugin is packed on machines of the architectures {}, and this is {architecture}",
            ARCHITECTURES.join(" and ")
        );
        let output = self.output.unwrap_or_else(|| workspace_dir().join("target/plugin"));
        std::fs::create_dir_all(&output).with_context(|| format!("cannot create {}", output.display()))?;

        let progress = Progress::stderr();
        let step = progress.step("build the kubectl plugin", None);
        let program = build_for_images(&[PROGRAM], &self.profile).await?.path(PROGRAM)?;
        step.done();
        let content = std::fs::read(&program).with_context(|| format!("read {}", program.display()))?;
        static_program::check(&content).with_context(|| format!("check {}", program.display()))?;

        let licence = std::fs::read(workspace_dir().join("LICENSE")).context("read LICENSE")?;
        let archive = archive::pack(&content, &licence).context("pack the kubectl plugin")?;
        let name = archive::file_name(architecture);
        write(&output, &name, &archive)?;
        write(&output, &format!("{name}.sha256"), archive::checksum_line(&archive, &name).as_bytes())?;
        let manifest = Manifest::of_archives(&output, &self.url)?;
        write(&output, "podward.yaml", manifest.to_yaml()?.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes a file and prints its path.
fn write(folder: &Path, name: &str, content: &[u8]) -> Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}
