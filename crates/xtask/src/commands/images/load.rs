//! Where images are brought to, besides the folder.

use std::{io::ErrorKind, path::Path, str::FromStr};

use anyhow::{Context, Error, Result, bail, ensure};
use podward_testbed::{Bed, Image};
use tokio::process::Command;

use crate::console;

/// A cluster whose nodes get the images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// That of kind with this name.
    Kind(String),
    /// One of `cargo xtask testbed up`.
    Bed(String),
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (what, name) = text.split_once(':').unwrap_or((text, ""));
        let or = |otherwise: &str| if name.is_empty() { otherwise } else { name }.to_owned();
        match what {
            // The names that the tools themselves give, if they are told none.
            "kind" => Ok(Self::Kind(or("kind"))),
            "bed" => Ok(Self::Bed(or("dev"))),
            _ => bail!("{text:?} is neither kind, kind:NAME nor bed:NAME"),
        }
    }
}

/// A cluster that can be loaded into.
pub(super) enum Loader {
    Kind(String),
    Bed(Box<Bed>),
}

impl Loader {
    /// Looks for the cluster, before anything takes time.
    pub(super) async fn of(target: &Target) -> Result<Self> {
        match target {
            Target::Kind(name) => {
                let known = clusters().await?;
                ensure!(
                    known.lines().any(|line| line.trim() == name),
                    "kind has no cluster called {name}; it has: {}",
                    known.split_whitespace().collect::<Vec<_>>().join(", ")
                );
                Ok(Self::Kind(name.clone()))
            }
            Target::Bed(name) => {
                let bed = Bed::attach(name).await;
                let bed = bed.context(
                    "`cargo xtask testbed up` starts one, `cargo xtask testbed status` lists them",
                )?;
                Ok(Self::Bed(Box::new(bed)))
            }
        }
    }

    /// Makes `image`, of which `archive` has been written, known to the nodes.
    pub(super) async fn load(&self, image: &Image, archive: &Path) -> Result<()> {
        match self {
            Self::Kind(name) => {
                let mut command = Command::new("kind");
                command.args(["load", "image-archive"]).arg(archive).args(["--name", name]);
                let status = console::run(&mut command, "kind").await?;
                ensure!(status.success(), "kind could not load {} ({status})", archive.display());
                Ok(())
            }
            Self::Bed(bed) => {
                let loaded = bed.import_image(image).await;
                loaded.with_context(|| format!("load {} into the bed {}", image.name(), bed.name()))
            }
        }
    }
}

async fn clusters() -> Result<String> {
    let mut command = Command::new("kind");
    command.args(["get", "clusters"]).kill_on_drop(true);
    let output = match command.output().await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("--load kind needs the program `kind`, which is not on the PATH (https://kind.sigs.k8s.io)")
        }
        output => output.context("run kind")?,
    };
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`kind get clusters` failed: {}", complaint.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_kind_of_cluster_and_a_name() {
        let parse = |text: &str| text.parse::<Target>();
        assert_eq!(parse("kind").expect("a target"), Target::Kind("kind".to_owned()));
        assert_eq!(parse("kind:two").expect("a target"), Target::Kind("two".to_owned()));
        assert_eq!(parse("bed:dev").expect("a target"), Target::Bed("dev".to_owned()));
        assert_eq!(parse("bed").expect("a target"), Target::Bed("dev".to_owned()));
        parse("minikube:x").expect_err("no such kind of cluster");
    }
}
