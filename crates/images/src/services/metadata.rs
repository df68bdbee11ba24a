//! The labels and files that all release images share.

use anyhow::{Context, Result};
use tokio::process::Command;

use super::authorities;
use crate::cargo::workspace_dir;
use crate::image::Image;

/// The metadata that all images of one build share.
#[derive(Clone, Debug)]
pub(super) struct CommonMetadata {
    revision: Option<String>,
    authorities: String,
}

impl CommonMetadata {
    pub(super) async fn of_workspace() -> Result<Self> {
        Ok(Self { revision: revision().await?, authorities: authorities::pem() })
    }

    /// Returns the image `name` for the program `title`. It runs as a user without rights, contains the public
    /// certificate authorities, and has the labels of the OCI image specification, `annotations.md`. It has no label
    /// with a time, so that images of the same sources are equal.
    pub(super) fn image(&self, name: String, title: &str) -> Image {
        let image = Image::new(name)
            .text(authorities::PATH, &*self.authorities)
            .user("65532:65532")
            .label("org.opencontainers.image.title", title)
            .label("org.opencontainers.image.version", env!("CARGO_PKG_VERSION"))
            .label("org.opencontainers.image.licenses", "Apache-2.0");
        match &self.revision {
            Some(revision) => image.label("org.opencontainers.image.revision", revision),
            None => image,
        }
    }
}

/// Returns the commit of the sources. Returns `None` outside of a git repository, and if files differ from the commit.
async fn revision() -> Result<Option<String>> {
    let Some(commit) = git(&["rev-parse", "--verify", "HEAD"]).await? else { return Ok(None) };
    let changes = git(&["status", "--porcelain"]).await?;
    Ok(Some(commit).filter(|_| changes.is_some_and(|changes| changes.is_empty())))
}

/// Runs git and returns its output. Returns `None` if git is not installed or fails.
async fn git(arguments: &[&str]) -> Result<Option<String>> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(workspace_dir()).kill_on_drop(true);
    match command.output().await {
        Ok(output) if output.status.success() => {
            Ok(Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
        }
        Ok(_) => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context("run git to find the commit of the sources"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[tokio::test]
    async fn labels_contain_title_version_and_revision_but_no_time() {
        let metadata = CommonMetadata { revision: Some("0123".to_owned()), authorities: authorities::pem() };
        let packed = metadata
            .image("registry/x:1".to_owned(), "mutating-webhook")
            .pack()
            .expect("an image of no program");
        let config: Value = serde_json::from_slice(packed.config.content()).expect("a config");
        let label =
            |name: &str| config["config"]["Labels"][format!("org.opencontainers.image.{name}")].clone();
        assert_eq!(label("title"), "mutating-webhook");
        assert_eq!(label("revision"), "0123");
        assert_eq!(label("version"), env!("CARGO_PKG_VERSION"));
        assert_eq!(label("created"), Value::Null);
        assert_eq!(config["config"]["User"], "65532:65532");
    }
}
