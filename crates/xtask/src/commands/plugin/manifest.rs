//! The manifest by which krew installs the plugin (krew's documentation, "Writing Krew plugin manifests").

use std::io::ErrorKind;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Error, Result, ensure};
use hyper::Uri;
use serde::Serialize;

use super::archive::{self, ARCHITECTURES, LICENCE, PROGRAM};

/// `kubectl krew search` shows 50 characters of it.
const SHORT_DESCRIPTION: &str = "Explain why pods wait, and operate on them";
const DESCRIPTION: &str = "\
Explains why a pod, a workload or a node does not start, serve or end: the
most probable cause, its age and the next command. It needs only the API
server. In clusters with Podward it also lists, traces, begins and finishes
operations on pods, and checks the installation.
";

/// The URL of the folder from which users download the archives.
#[derive(Debug, Clone)]
pub(super) struct BaseUrl(String);

impl FromStr for BaseUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let url: Uri = text.parse().context("not a URL")?;
        let download = matches!(url.scheme_str(), Some("https" | "http")) && url.host().is_some();
        ensure!(download, "the URL has to begin with https://HOST");
        ensure!(
            !text.contains(['?', '#']),
            "names of files are appended, so the URL has to be without ? and #"
        );
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

/// The manifest of one version.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Debug, Serialize)]
struct Metadata {
    name: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    version: &'static str,
    short_description: &'static str,
    description: &'static str,
    platforms: Vec<Platform>,
}

/// An archive, and the machines for which it is.
#[derive(Debug, Serialize)]
struct Platform {
    selector: Selector,
    uri: String,
    sha256: String,
    files: [CopiedFile; 2],
    bin: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Selector {
    match_labels: PlatformLabels,
}

#[derive(Debug, Serialize)]
struct PlatformLabels {
    os: &'static str,
    arch: &'static str,
}

/// A file of the archive that krew copies into the folder of the plugin.
#[derive(Debug, Serialize)]
struct CopiedFile {
    from: &'static str,
    to: &'static str,
}

impl Manifest {
    /// Returns the manifest for the archives of this version in `folder`, which are published at `url`.
    ///
    /// # Errors
    /// When there is no archive, or one is not that of its checksum file.
    pub(super) fn of_archives(folder: &Path, url: &BaseUrl) -> Result<Self> {
        let mut platforms = Vec::new();
        for architecture in ARCHITECTURES {
            platforms.extend(Platform::of_archive(folder, architecture, url)?);
        }
        ensure!(!platforms.is_empty(), "{} has no archive of this version", folder.display());
        Ok(Self {
            api_version: "krew.googlecontainertools.github.com/v1alpha2",
            kind: "Plugin",
            metadata: Metadata { name: "podward" },
            spec: Spec {
                version: concat!("v", env!("CARGO_PKG_VERSION")),
                short_description: SHORT_DESCRIPTION,
                description: DESCRIPTION,
                platforms,
            },
        })
    }

    /// Returns the text of the manifest.
    ///
    /// # Errors
    /// When it cannot be written as YAML.
    pub(super) fn to_yaml(&self) -> Result<String> {
        serde_saphyr::to_string(self).context("write the manifest as YAML")
    }
}

impl Platform {
    /// Returns the platform of the archive for `architecture`. Returns `None` if the archive is not in `folder`.
    fn of_archive(folder: &Path, architecture: &'static str, url: &BaseUrl) -> Result<Option<Self>> {
        let name = archive::file_name(architecture);
        let path = folder.join(&name);
        let content = match std::fs::read(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        };
        // Archives of other architectures were copied from another machine.
        let checksum = folder.join(format!("{name}.sha256"));
        let line =
            std::fs::read_to_string(&checksum).with_context(|| format!("read {}", checksum.display()))?;
        ensure!(
            line == archive::checksum_line(&content, &name),
            "{} is not the file of {}: copy both again, or remove them",
            path.display(),
            checksum.display()
        );
        Ok(Some(Self {
            selector: Selector { match_labels: PlatformLabels { os: "linux", arch: architecture } },
            uri: format!("{}/{name}", url.0),
            sha256: archive::sha256(&content),
            files: [CopiedFile { from: PROGRAM, to: "." }, CopiedFile { from: LICENCE, to: "." }],
            bin: PROGRAM,
        }))
    }
}

#[cfg(test)]
mod tests;
