//! The images and containers of the real nodes.

use futures::future::try_join_all;
use podward_images::Image;

use crate::{
    components::node,
    error::{During, TestClusterError},
    node_number::NodeNumber,
    process::Command,
    shape::Shape,
    test_cluster::{TestCluster, died},
};

impl TestCluster {
    /// Imports an image into every node.
    pub async fn import_image(&self, image: &Image) -> Result<(), TestClusterError> {
        if self.record.shape != Shape::Node {
            let message =
                format!("a cluster of shape {} has no node that could take an image", self.record.shape);
            return Err(TestClusterError::Unsupported(message));
        }
        let archive = tempfile::Builder::new().prefix("image-").suffix(".tar").tempfile_in(&self.layout.dir);
        let archive = archive.during(|| "make a file for an image".to_owned())?.into_temp_path();
        image.write(&archive)?;
        let importing = self
            .numbers()
            .into_iter()
            .map(|node| self.spawn_to_its_end(node, node::import(self.context(), &archive)));
        try_join_all(importing).await.map(drop)
    }

    /// Sends a signal, by its number, to the first process of a container, for example SIGKILL to simulate a crash.
    /// `container` is its id in containerd, which is unique, so that the node need not be known.
    pub async fn signal_container(&self, container: &str, signal: i32) -> Result<(), TestClusterError> {
        let mut sent = Ok(());
        for node in self.numbers() {
            sent = self.spawn_to_its_end(node, node::signal(self.context(), container, signal)).await;
            if sent.is_ok() {
                break;
            }
        }
        sent
    }

    async fn spawn_to_its_end(&self, node: NodeNumber, command: Command) -> Result<(), TestClusterError> {
        let process = self.spawn_on(node, command).await?;
        let exit = process.wait().await?;
        if exit.success() { Ok(()) } else { Err(died(&process, exit)) }
    }
}
