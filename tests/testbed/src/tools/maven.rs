//! Fetches the servers that are published as Java archives.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::process::Command;

use super::command::run;
use super::error::ToolsError;
use super::progress::Progress;

pub(super) const STEP: &str = "fetch Eureka and Jetty";
pub(super) const EXPECTED: Duration = Duration::from_secs(15);

/// The plugin of Maven that fetches an archive.
const PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy";
/// The folder of the archives in the cache folder.
const FOLDER: &str = "java";

/// An archive.
#[derive(Debug)]
struct Archive {
    /// Group, name, version and type.
    artifact: &'static str,
    file: &'static str,
    sha256: &'static str,
}

/// Eureka, and a server that runs it.
const ARCHIVES: [Archive; 2] = [
    Archive {
        artifact: "com.netflix.eureka:eureka-server:1.10.1:war",
        file: "eureka-server-1.10.1.war",
        sha256: "8babe5189e5b50b6e1d58a20ae74c8f7d7656f5cc371cb5e01b9bc15e1c8ae51",
    },
    Archive {
        artifact: "org.eclipse.jetty:jetty-runner:9.4.53.v20231009:jar",
        file: "jetty-runner-9.4.53.v20231009.jar",
        sha256: "4e8f17b281cb6682675086daced3191cd826830496ee4ad8befa6d684f2a925d",
    },
];

/// Returns the path of the archive whose file name begins with `name`.
pub(super) fn archive(dir: &Path, name: &str) -> Option<PathBuf> {
    let found = ARCHIVES.iter().find(|archive| archive.file.starts_with(name))?;
    Some(dir.join(FOLDER).join(found.file))
}

/// Returns whether all archives are in `dir`. They are put there only when they are complete.
pub(super) fn is_fetched(dir: &Path) -> bool {
    ARCHIVES.iter().all(|archive| dir.join(FOLDER).join(archive.file).exists())
}

/// Fetches the archives into `dir`, and checks them.
pub(super) async fn fetch(dir: &Path, progress: &Progress) -> Result<(), ToolsError> {
    let step = progress.step(STEP, None);
    let place = dir.join(FOLDER);
    std::fs::create_dir_all(&place).map_err(|e| ToolsError::io("create", &place, e))?;
    let work = tempfile::Builder::new()
        .prefix("build-")
        .tempdir_in(dir)
        .map_err(|e| ToolsError::io("create a folder for archives in", dir, e))?;
    for archive in &ARCHIVES {
        step.detail(archive.file);
        let mut command = Command::new("mvn");
        command.args(["-q", "-B", PLUGIN]).arg(format!("-Dartifact={}", archive.artifact));
        command.arg(format!("-DoutputDirectory={}", work.path().display()));
        command.current_dir(work.path());
        let shown = format!("mvn {PLUGIN} -Dartifact={}", archive.artifact);
        run(command, "fetching an archive", &shown, "check the network and Maven's settings", &step).await?;
        let fetched = work.path().join(archive.file);
        let content = std::fs::read(&fetched).map_err(|e| ToolsError::io("read", &fetched, e))?;
        let digest: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        if digest != archive.sha256 {
            return Err(ToolsError::Digest { file: archive.file, expected: archive.sha256, found: digest });
        }
        let target = place.join(archive.file);
        std::fs::rename(&fetched, &target).map_err(|e| ToolsError::io("put in place", &target, e))?;
    }
    step.done();
    Ok(())
}
