//! Operations that are under way while something happens to Podward.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use podward_core::keys::Stage;
use podward_support::{Operator, PodFeed, pods};

use super::{lives, site::Site};

/// Two pods of an application and an operator that works on both.
pub(crate) struct UnderWay {
    feed: PodFeed,
    operator: Operator,
    /// It has its permission.
    allowed: String,
    /// The operation was announced a moment ago.
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

    /// Both come to their end, as if nothing had happened.
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
