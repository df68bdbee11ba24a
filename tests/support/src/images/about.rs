//! What Podward's images have in common, and what they tell of themselves.

use anyhow::{Context, Result};
use podward_testbed::{Image, workspace_dir};
use tokio::process::Command;

use super::authorities;

/// What is the same for all images of one build.
#[derive(Clone, Debug)]
pub(super) struct About {
    revision: Option<String>,
    authorities: String,
}

impl About {
    pub(super) async fn this() -> Result<Self> {
        Ok(Self { revision: revision().await?, authorities: authorities::pem() })
    }

    /// The image `name` of the program `title`: it runs as nobody, knows the public certificate authorities, and has labels by the
    /// OCI image specification, `annotations.md`. There is no time of making: images of the same sources are the same.
    pub(super) fn image(&self, name: String, title: &str) -> Image {
        let image = Image::new(name)
            .text(authorities::PLACE, &*self.authorities)
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

/// The commit that the sources are those of. There is none outside of a git repository, and where something was changed since.
async fn revision() -> Result<Option<String>> {
    let Some(commit) = git(&["rev-parse", "--verify", "HEAD"]).await? else { return Ok(None) };
    let changes = git(&["status", "--porcelain"]).await?;
    Ok(Some(commit).filter(|_| changes.is_some_and(|changes| changes.is_empty())))
}

/// What git prints; nothing where it isn't installed or fails.
async fn git(arguments: &[&str]) -> Result<Option<String>> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(workspace_dir()).kill_on_drop(true);
    match command.output().await {
        Ok(output) if output.status.success() => {
            Ok(Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
        }
        Ok(_) => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context("run git, to learn which commit the images are made of"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[tokio::test]
    async fn labels_tell_what_it_is_and_no_time() {
        let about = About { revision: Some("0123".to_owned()), authorities: authorities::pem() };
        let packed = about
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
