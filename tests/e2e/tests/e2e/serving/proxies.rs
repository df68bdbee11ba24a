//! kube-proxy can't be read, or hangs.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use podward_core::keys::Stage;
use podward_e2e::{Scene, Test};

use super::place::{crowd, in_service, lost_nothing, of_app, operate, proves, serve, until_it_says};

/// Nobody listens there.
const NOBODY: &str = "http://127.0.0.1:9/metrics";
/// Longer than a proxy that was never read is waited for, requests in flight included.
const LONGER: Duration = Duration::from_secs(10);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving_alone("a_proxy_that_cannot_be_read", a_proxy_that_cannot_be_read),
        Test::serving_alone("a_proxy_that_hangs", a_proxy_that_hangs),
    ]
}

/// The wait is bounded, and the record says so.
async fn a_proxy_that_cannot_be_read(scene: Arc<Scene>) -> Result<()> {
    let installation = scene.installation()?;
    installation.upgrade(&[&format!("traffic-controller.kubeProxyMetricsUrl={NOBODY}")]).await?;
    let bounded = bounded(&scene).await;
    installation.upgrade(&[]).await?;
    bounded?;
    proves(&*operate(&scene, "web-0").await?, "BOUNDED", &["kube-proxy of 1 node has it"])
}

async fn bounded(scene: &Scene) -> Result<()> {
    serve(scene, "web", of_app("web")).await?;
    in_service(scene, "web", ["web-0", "web-1"]).await?;
    let crowd = crowd(scene, "web").await?;
    let operator = scene.operator("a", "update");
    operator.begin("web-0").await?;
    let allowed = operator.await_operate("web-0").await?;
    proves(&allowed, "BOUNDED", &["5 s or more were waited for that of node1", NOBODY])?;
    let took = scene.report("web-0").await?.operations[0].begin_to_operate();
    ensure!(took >= Some(7000.0), "allowed after {took:?} ms");
    operator.set_image("web-0", &scene.images().v2).await?;
    operator.await_image(&allowed, &scene.images().v2).await?;
    operator.finish("web-0").await?;
    operator.await_end("web-0").await?;
    lost_nothing(crowd).await
}

/// A kube-proxy that hangs goes on leading new connections to the pod: it is waited for, and named.
async fn a_proxy_that_hangs(scene: Arc<Scene>) -> Result<()> {
    serve(&scene, "web", of_app("web")).await?;
    in_service(&scene, "web", ["web-0", "web-1"]).await?;
    let crowd = crowd(&scene, "web").await?;
    let bed = scene.cluster().bed().context("not on a bed")?;
    let proxy = bed.component("kube-proxy").context("the bed has no kube-proxy")?;
    let operator = scene.operator("a", "update");
    proxy.signal(STOP).await?;
    let waited = async {
        operator.begin("web-0").await?;
        until_it_says(&scene, "web-0", &["PREPARE", "kube-proxy of node1", "no answer within"]).await?;
        let allowed = scene
            .feed()
            .until_within(LONGER, "web-0", "it is allowed", |pod| operator.has(pod, Stage::Operate));
        ensure!(allowed.await.is_err(), "allowed while new connections are led to it");
        Ok(())
    };
    let waited = waited.await;
    proxy.signal(CONTINUE).await?;
    waited?;
    let allowed = operator.await_operate("web-0").await?;
    proves(&allowed, "BOUNDED", &["kube-proxy of 1 node has it"])?;
    operator.set_image("web-0", &scene.images().v2).await?;
    operator.await_image(&allowed, &scene.images().v2).await?;
    operator.finish("web-0").await?;
    operator.await_end("web-0").await?;
    lost_nothing(crowd).await
}

const STOP: i32 = 19;
const CONTINUE: i32 = 18;
