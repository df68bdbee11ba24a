//! Operations that run while Podward changes.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use podward_core::keys::Stage;
use podward_support::{Operator, PodFeed, pods};

use super::{lives, site::Site};

/// Two pods of an application, and an operator for both.
pub(crate) struct UnderWay {
    feed: PodFeed,
    operator: Operator,
    /// The pod whose operation has its permission.
    allowed: String,
    /// The pod whose operation has just begun.
    announced: String,
}

impl UnderWay {
    pub(crate) async fn begin(site: &Site) -> Result<Self> {
        let namespace = lives::make(site, None).await?;
        let feed = PodFeed::start(site.client(), &namespace, "").await?;
        let two = |pods: &[&k8s_openapi::api::core::v1::Pod]| {
            pods.len() == 2 && pods.iter().all(|pod| pods::is_available(pod))
        };
        let both = feed.until_pods("two pods are available", two).await?;
        let names: Vec<String> = both.iter().map(|pod| pod.name_any()).collect();
        let [allowed, announced] = names.try_into().ok().context("there are not two pods")?;
        let operator = Operator::new(&feed, "patch", "update");
        operator.begin(&allowed).await?;
        operator.await_operate(&allowed).await?;
        operator.begin(&announced).await?;
        Ok(Self { feed, operator, allowed, announced })
    }

    /// Checks that both operations end as usual.
    pub(crate) async fn end(self, site: &Site) -> Result<()> {
        let Self { feed, operator, allowed, announced } = self;
        let pod = feed.get(&allowed).with_context(|| format!("pod {allowed} is gone"))?;
        ensure!(operator.has(&pod, Stage::Operate), "lost its permission: {}", pods::describe(&pod));
        operator.await_operate(&announced).await?;
        for pod in [&allowed, &announced] {
            operator.finish(pod).await?;
            operator.await_end(pod).await?;
        }
        lives::remove(site, feed.namespace()).await
    }
}
