//! A simulated cluster that runs Podward.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use kube::Client;
use podward_support::{Cluster, Podward, PodwardOptions, ServiceKind};
use podward_testbed::{Shape, TestCluster, TestClusterBuilder};

/// A simulated cluster, and Podward's services.
pub(crate) struct SimulatedPodward {
    pub(crate) test_cluster: Arc<TestCluster>,
    pub(crate) podward: Podward,
}

impl SimulatedPodward {
    /// Returns a builder of the cluster `name` with `nodes` simulated nodes and an audit log.
    pub(crate) fn audited(name: &str, nodes: usize) -> TestClusterBuilder {
        TestCluster::builder(Shape::Simulated).name(name).simulated_nodes(nodes).audit_log(true)
    }

    /// Returns Podward's services, built with the cargo profile `profile`. With `drops_managed_fields`, new pods that are
    /// opted in have no managed fields.
    pub(crate) fn services(profile: &str, drops_managed_fields: bool) -> PodwardOptions {
        let flag = || (ServiceKind::MutatingWebhook, "--drop-managed-fields".to_owned());
        let more = drops_managed_fields.then(flag).into_iter().collect();
        PodwardOptions { profile: profile.to_owned(), more, ..PodwardOptions::default() }
    }

    /// Starts the cluster and `services`. Calls `say` with the progress.
    pub(crate) async fn start(
        builder: TestClusterBuilder,
        services: PodwardOptions,
        say: impl Fn(&str),
    ) -> Result<Self> {
        say("starting a simulated cluster");
        let test_cluster = Arc::new(builder.start().await?);
        say("starting Podward");
        let podward = Podward::start(&Cluster::of_test_cluster(test_cluster.clone()), services).await?;
        Ok(Self { test_cluster, podward })
    }

    /// Returns a client of the cluster's administrator.
    pub(crate) fn client(&self) -> Client {
        self.podward.cluster().client()
    }

    /// Returns the path of the audit log.
    pub(crate) fn audit(&self) -> Result<PathBuf> {
        self.test_cluster.audit_log().context("the test cluster writes no audit log")
    }

    /// Ends both.
    pub(crate) async fn end(self) -> Result<()> {
        drop(self.podward);
        Ok(self.test_cluster.down().await?)
    }
}
