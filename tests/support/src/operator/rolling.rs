//! A rolling update in place.

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};

use super::Operator;
use crate::pods;

impl Operator {
    /// One whole operation: announce it, wait for the permission, change the image, wait until it runs, finish, and wait until
    /// the pod is in service again.
    ///
    /// # Errors
    /// When any of it fails or takes too long.
    pub async fn update(&self, pod: &str, image: &str) -> Result<()> {
        self.begin(pod).await?;
        let before = self.await_operate(pod).await?;
        self.set_image(pod, image).await?;
        self.await_image(&before, image).await?;
        self.finish(pod).await?;
        self.await_end(pod).await
    }

    /// Waits until nothing of this operation is left and the pod is in service.
    ///
    /// # Errors
    /// When that doesn't happen in time.
    pub async fn await_end(&self, pod: &str) -> Result<()> {
        use podward_core::keys::Stage;
        let over =
            |pod: &_| pods::is_available(pod) && !Stage::OURS.iter().any(|stage| self.has(pod, *stage));
        let what = format!("operation {} is over and the pod is available", self.id);
        self.feed.until(pod, &what, over).await.map(drop)
    }

    /// [`update`](Self::update) of all `pods`, at most `max_concurrent` at a time, in their order.
    ///
    /// # Errors
    /// The first error; the rest is not begun.
    pub async fn update_all(&self, pods: &[String], image: &str, max_concurrent: usize) -> Result<()> {
        let updates = stream::iter(pods.to_vec()).map(|pod| async move { self.update(&pod, image).await });
        updates.buffer_unordered(max_concurrent).try_collect::<Vec<()>>().await.map(drop)
    }
}
