//! Fetches the servers that are published as Java archives.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::process::Command;

use super::command::{run, work_folder};
use super::error::ToolsError;
use super::part::Part;
use super::progress::Progress;

pub(super) const EXPECTED: Duration = Duration::from_secs(20);

/// The parts that consist of archives, and the names of the steps that fetch them.
pub(super) const PARTS: [(Part, &str); 2] =
    [(Part::Eureka, "fetch Eureka and Jetty"), (Part::ZooKeeper, "fetch ZooKeeper")];

/// The plugin of Maven that fetches an archive.
const PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy";
/// The folder of the archives in the cache folder.
const FOLDER: &str = "java";

/// An archive.
#[derive(Debug)]
struct Archive {
    part: Part,
    /// Group, name, version and type.
    artifact: &'static str,
    file: &'static str,
    sha256: &'static str,
}

/// Eureka and a server that runs it, and ZooKeeper with the libraries that its server needs.
const ARCHIVES: [Archive; 8] = [
    Archive {
        part: Part::Eureka,
        artifact: "com.netflix.eureka:eureka-server:1.10.1:war",
        file: "eureka-server-1.10.1.war",
        sha256: "8babe5189e5b50b6e1d58a20ae74c8f7d7656f5cc371cb5e01b9bc15e1c8ae51",
    },
    Archive {
        part: Part::Eureka,
        artifact: "org.eclipse.jetty:jetty-runner:9.4.53.v20231009:jar",
        file: "jetty-runner-9.4.53.v20231009.jar",
        sha256: "4e8f17b281cb6682675086daced3191cd826830496ee4ad8befa6d684f2a925d",
    },
    Archive {
        part: Part::ZooKeeper,
        artifact: "org.apache.zookeeper:zookeeper:3.9.4:jar",
        file: "zookeeper-3.9.4.jar",
        sha256: "7bb3bb38bbddbc71424c59a7a0b170a1b2147313a84c972225ab0568dab513bf",
    },
    Archive {
        part: Part::ZooKeeper,
        artifact: "org.apache.zookeeper:zookeeper-jute:3.9.4:jar",
        file: "zookeeper-jute-3.9.4.jar",
        sha256: "bd9750935add09b6cb920f7bcf0fa7b9a8165c45cdafd8ee1fc6808c46ec9094",
    },
    Archive {
        part: Part::ZooKeeper,
        artifact: "org.slf4j:slf4j-api:2.0.13:jar",
        file: "slf4j-api-2.0.13.jar",
        sha256: "e7c2a48e8515ba1f49fa637d57b4e2f590b3f5bd97407ac699c3aa5efb1204a9",
    },
    Archive {
        part: Part::ZooKeeper,
        artifact: "org.slf4j:slf4j-simple:2.0.13:jar",
        file: "slf4j-simple-2.0.13.jar",
        sha256: "3153fe1d689cffb94f1530b58470c306685ba68844de8857116e3b6ebb81d9f7",
    },
    Archive {
        part: Part::ZooKeeper,
        artifact: "io.dropwizard.metrics:metrics-core:4.1.12.1:jar",
        file: "metrics-core-4.1.12.1.jar",
        sha256: "cec34936faa625039f4e46123eccaa10a9eb9d9a40c6075830cd81330e259cf9",
    },
    Archive {
        part: Part::ZooKeeper,
        artifact: "org.xerial.snappy:snappy-java:1.1.10.5:jar",
        file: "snappy-java-1.1.10.5.jar",
        sha256: "0f3f1857ed33116583f480b4df5c0218836c47bfbc9c6221c0d73f356decf37b",
    },
];

fn archives(part: Part) -> impl Iterator<Item = &'static Archive> {
    ARCHIVES.iter().filter(move |archive| archive.part == part)
}

/// Returns the paths of the archives of `part`.
pub(super) fn paths(dir: &Path, part: Part) -> impl Iterator<Item = PathBuf> {
    archives(part).map(move |archive| dir.join(FOLDER).join(archive.file))
}

/// Returns the path of the archive whose file name begins with `name`.
pub(super) fn archive(dir: &Path, name: &str) -> Option<PathBuf> {
    let found = ARCHIVES.iter().find(|archive| archive.file.starts_with(name))?;
    Some(dir.join(FOLDER).join(found.file))
}

/// Returns whether all archives of `part` are in `dir`. They are put there only when they are complete.
pub(super) fn is_fetched(dir: &Path, part: Part) -> bool {
    paths(dir, part).all(|path| path.exists())
}

/// Fetches the archives of `part` into `dir`, and checks them. `name` is the name of the step.
pub(super) async fn fetch(
    dir: &Path,
    (part, name): (Part, &'static str),
    progress: &Progress,
) -> Result<(), ToolsError> {
    let step = progress.step(name, None);
    let place = dir.join(FOLDER);
    std::fs::create_dir_all(&place).map_err(|e| ToolsError::io("create", &place, e))?;
    let work = work_folder(dir)?;
    for archive in archives(part) {
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
