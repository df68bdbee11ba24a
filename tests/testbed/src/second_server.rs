//! The second API server of a running cluster.

use std::time::Duration;

use kube::Client;

use crate::{
    client::Clients, components::SECOND_API, control::ControlClient, error::TestClusterError, kubeconfig,
    pki::name, test_cluster::TestCluster,
};

impl TestCluster {
    /// Returns a new client of the second API server for the admin, from the host, like [`client`](Self::client). It
    /// needs the builder's `api_servers(2)`.
    pub async fn second_client(&self) -> Result<Client, TestClusterError> {
        self.check_second()?;
        let at = self.forward(SECOND_API).await?;
        let path = self.layout.dir.join(format!("admin-{}.kubeconfig", at.port()));
        kubeconfig::write(&self.layout.pki(), &path, &format!("https://{at}"), name::ADMIN)?;
        Ok(Clients::from_kubeconfig(&path).await?.client())
    }

    /// Delays the watches of the second API server: their clients learn of every change `lag` later. Other requests
    /// are not delayed. What waits already is delivered when it is as old as the new lag; zero, the initial lag,
    /// delivers it at once.
    pub async fn lag_watches(&self, lag: Duration) -> Result<(), TestClusterError> {
        self.check_second()?;
        ControlClient::new(self.layout.lag_socket()).lag(lag).await
    }

    fn check_second(&self) -> Result<(), TestClusterError> {
        if self.record.api_servers < 2 {
            let message = format!("cluster {} has one API server: start it with two", self.record.id);
            return Err(TestClusterError::Unsupported(message));
        }
        Ok(())
    }
}
