//! A rolling update in place.

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};

use super::Operator;
use crate::pods;

impl Operator {
    /// Performs a whole operation: announces it, waits for the permission, changes the image, waits until it runs,
    /// finishes, and waits until the pod is available again.
    ///
    /// # Errors
    /// Fails if a step fails or takes too long.
    pub async fn update(&self, pod: &str, image: &str) -> Result<()> {
        self.begin(pod).await?;
        let before = self.await_operate(pod).await?;
        self.set_image(pod, image).await?;
        self.await_image(&before, image).await?;
        self.finish(pod).await?;
        self.await_end(pod).await
    }

    /// Waits until no label of this operation is left and the pod is available.
    ///
    /// # Errors
    /// Fails if that does not happen in time.
    pub async fn await_end(&self, pod: &str) -> Result<()> {
        use podward_core::keys::Stage;
        let over =
            |pod: &_| pods::is_available(pod) && !Stage::OURS.iter().any(|stage| self.has(pod, *stage));
        let what = format!("operation {} is over and the pod is available", self.id);
        self.feed.until(pod, &what, over).await.map(drop)
    }

    /// [`update`](Self::update)s all `pods` in their order, at most `max_concurrent` at a time.
    ///
    /// # Errors
    /// Returns the first error. The remaining updates do not begin.
    pub async fn update_all(&self, pods: &[String], image: &str, max_concurrent: usize) -> Result<()> {
        let updates = stream::iter(pods.to_vec()).map(|pod| async move { self.update(&pod, image).await });
        updates.buffer_unordered(max_concurrent).try_collect::<Vec<()>>().await.map(drop)
    }
}
