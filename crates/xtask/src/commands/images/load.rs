//! Loads images into the nodes of clusters.

use std::{io::ErrorKind, path::Path, str::FromStr};

use anyhow::{Context, Error, Result, bail, ensure};
use podward_images::Image;
use podward_testbed::TestCluster;
use tokio::process::Command;

use crate::console;

/// The name of a cluster to load images into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LoadTarget {
    /// The kind cluster with this name.
    Kind(String),
    /// The test cluster of `cargo xtask testbed up` with this name.
    TestCluster(String),
}

impl FromStr for LoadTarget {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (what, name) = text.split_once(':').unwrap_or((text, ""));
        let or = |otherwise: &str| if name.is_empty() { otherwise } else { name }.to_owned();
        match what {
            // The default names of the tools.
            "kind" => Ok(Self::Kind(or("kind"))),
            "bed" => Ok(Self::TestCluster(or("dev"))),
            _ => bail!("{text:?} is neither kind, kind:NAME nor bed:NAME"),
        }
    }
}

/// Loads images into the nodes of a running cluster.
pub(super) enum ImageLoader {
    Kind(String),
    TestCluster(Box<TestCluster>),
}

impl ImageLoader {
    /// Finds the cluster.
    ///
    /// # Errors
    /// When it does not run, or `kind` is not installed.
    pub(super) async fn of(target: &LoadTarget) -> Result<Self> {
        match target {
            LoadTarget::Kind(name) => {
                let known = clusters().await?;
                ensure!(
                    known.lines().any(|line| line.trim() == name),
                    "kind has no cluster called {name}; it has: {}",
                    known.split_whitespace().collect::<Vec<_>>().join(", ")
                );
                Ok(Self::Kind(name.clone()))
            }
            LoadTarget::TestCluster(name) => {
                let bed = TestCluster::attach(name).await;
                let bed = bed.context(
                    "`cargo xtask testbed up` starts one, `cargo xtask testbed status` lists them",
                )?;
                Ok(Self::TestCluster(Box::new(bed)))
            }
        }
    }

    /// Loads `image` into the nodes. `archive` is the file of the image.
    ///
    /// # Errors
    /// When a node does not accept it.
    pub(super) async fn load(&self, image: &Image, archive: &Path) -> Result<()> {
        match self {
            Self::Kind(name) => {
                let mut command = Command::new("kind");
                command.args(["load", "image-archive"]).arg(archive).args(["--name", name]);
                let status = console::run(&mut command, "kind").await?;
                ensure!(status.success(), "kind could not load {} ({status})", archive.display());
                Ok(())
            }
            Self::TestCluster(bed) => {
                let loaded = bed.import_image(image).await;
                loaded.with_context(|| format!("load {} into the test cluster {}", image.name(), bed.name()))
            }
        }
    }
}

/// Returns the names of the kind clusters, one a line.
async fn clusters() -> Result<String> {
    let mut command = Command::new("kind");
    command.args(["get", "clusters"]).kill_on_drop(true);
    let output = match command.output().await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("--load kind needs the program `kind`, which is not on the PATH (https://kind.sigs.k8s.io)")
        }
        output => output.context("run kind")?,
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`kind get clusters` failed: {}", errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_kind_of_cluster_and_a_name() {
        let parse = |text: &str| text.parse::<LoadTarget>();
        assert_eq!(parse("kind").expect("a target"), LoadTarget::Kind("kind".to_owned()));
        assert_eq!(parse("kind:two").expect("a target"), LoadTarget::Kind("two".to_owned()));
        assert_eq!(parse("bed:dev").expect("a target"), LoadTarget::TestCluster("dev".to_owned()));
        assert_eq!(parse("bed").expect("a target"), LoadTarget::TestCluster("dev".to_owned()));
        parse("minikube:x").expect_err("no such kind of cluster");
    }
}
