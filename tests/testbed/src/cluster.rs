//! Where tests and the demo run: in a bed of their own, or in a cluster that the user has.

use std::path::{Path, PathBuf};

use kube::Client;

use crate::{bed::Bed, client::Clients, error::BedError};

/// A cluster that was there before, known by its kubeconfig.
pub struct ExistingCluster {
    kubeconfig: PathBuf,
    clients: Clients,
}

impl ExistingCluster {
    /// Uses the current context of the kubeconfig.
    pub async fn from_kubeconfig(path: impl Into<PathBuf>) -> Result<Self, BedError> {
        let kubeconfig = path.into();
        let clients = Clients::from_kubeconfig(&kubeconfig).await?;
        Ok(Self { kubeconfig, clients })
    }
}

/// A cluster of either kind.
pub enum Cluster {
    /// Started by this process or by `cargo xtask testbed up`.
    Bed(Box<Bed>),
    /// The user's.
    Existing(ExistingCluster),
}

impl Cluster {
    /// A new client, without retries, timeouts and limits of its own. It belongs to the runtime in which this is called.
    pub fn client(&self) -> Client {
        match self {
            Cluster::Bed(bed) => bed.client(),
            Cluster::Existing(cluster) => cluster.clients.client(),
        }
    }

    /// The kubeconfig, for programs on the host.
    pub fn kubeconfig(&self) -> &Path {
        match self {
            Cluster::Bed(bed) => bed.kubeconfig(),
            Cluster::Existing(cluster) => &cluster.kubeconfig,
        }
    }

    /// The bed, if it is one: only there can processes be started beside the API server.
    pub fn bed(&self) -> Option<&Bed> {
        match self {
            Cluster::Bed(bed) => Some(bed),
            Cluster::Existing(_) => None,
        }
    }
}
