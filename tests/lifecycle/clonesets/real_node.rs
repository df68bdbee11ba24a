//! The lifecycle of a CloneSet with a kubelet, containers and volumes.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use parking_lot::Mutex;
use podward_api::clone_set::CloneSetStatus;
use podward_core::cloneset::keys::CONTAINER_PRIORITY;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use podward_e2e::{Fixture, Test};
use podward_support::markers::{ASKING, MarkerOperator, States, answer};
use podward_support::{PodFeedEvent, observe, pods};
use serde_json::{Value, json};

use super::made::{MadeSet, hooks};
use super::volumes::{Volumes, with_volume};
use crate::serving::service_fixture::{crowd, lost_nothing, of_app, serve};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving("cloneset_lifecycle_on_a_real_node", lifecycle),
        Test::serving("cloneset_containers_with_priorities", priorities),
        Test::serving_alone("cloneset_updates_lose_nothing", under_load),
    ]
}

/// The scenarios of the articles about the protocol, one after the other, with a volume of each pod.
async fn lifecycle(fixture: Arc<Fixture>) -> Result<()> {
    let volumes = Volumes::create(&fixture).await?;
    let (states, _watch) = States::record(fixture.client(), fixture.namespace()).await?;
    let spec = json!({
        "lifecycle": hooks(),
        "template": {"spec": with_volume(pods::server_spec(&fixture.images().v1))},
        "volumeClaimTemplates": [volumes.claim()],
    });
    let set = MadeSet::create(&fixture, json!({}), spec).await?;
    let operator = MarkerOperator::start(fixture.feed(), ASKING);
    set.until_done(2).await?;
    volumes.until_of_pods(&fixture).await?;
    let first = fixture.feed().all();

    set.update(&fixture.images().v2).await?;
    set.until_done(2).await?;
    let expected = ["PreparingNormal", "Normal", "PreparingUpdate", "Updating", "Updated", "Normal"];
    for old in &first {
        let name = old.name_any();
        let pod = fixture.feed().get(&name).filter(|pod| pod.uid() == old.uid());
        let pod = pod.with_context(|| format!("pod {name} was replaced"))?;
        let container = pods::container(&pod).context("a pod without a container")?;
        ensure!(container.image == fixture.images().v2 && container.restart_count == 1, "{container:?}");
        ensure!(states.all().get(&name).is_some_and(|it| it == &expected), "{:?}", states.all());
    }
    volumes.until_of_pods(&fixture).await?;

    // A rolling recreate: without the operator, the new pod is Ready and no old one is touched.
    drop(operator);
    let strategy = json!({"type": "ReCreate", "maxSurge": 1, "maxUnavailable": 0});
    set.patch(json!({"updateStrategy": strategy})).await?;
    set.update(&fixture.images().v1).await?;
    let pods = set.until_states(&["Normal", "Normal", "PreparingNormal"]).await?;
    let is_new = |pod: &&Arc<Pod>| first.iter().all(|old| old.uid() != pod.uid());
    let new = pods.iter().find(is_new).context("there is no new pod")?;
    fixture.feed().until(&new.name_any(), "it is Ready", pods::is_ready).await?;
    set.until("the new pod is not available", |it| (it.ready_replicas, it.available_replicas) == (3, 2))
        .await?;
    let operator = MarkerOperator::start(fixture.feed(), ASKING);
    set.until_done(2).await?;
    let is_gone = |pods: &[&Pod]| pods.iter().all(|pod| first.iter().all(|old| old.uid() != pod.uid()));
    fixture.feed().until_pods("the old pods are gone", is_gone).await?;
    let expected =
        ["PreparingNormal", "Normal", "PreparingUpdate", "Updating", "Updated", "Normal", "PreparingDelete"];
    for old in &first {
        ensure!(states.all().get(&old.name_any()).is_some_and(|it| it == &expected), "{:?}", states.all());
    }
    volumes.until_of_pods(&fixture).await?;

    // A scale-in waits for the operator, and the containers run until it has answered.
    drop(operator);
    set.patch(json!({"replicas": 1})).await?;
    let pods = set.until_states(&["Normal", "PreparingDelete"]).await?;
    for pod in &pods {
        ensure!(pods::is_ready(pod), "{} left service before its operator answered", pod.name_any());
        answer(&fixture.api(), pod).await?;
    }
    fixture.feed().until_pods("one pod is left", |pods| pods.len() == 1).await?;
    set.until_done(1).await?;
    volumes.until_of_pods(&fixture).await?;
    volumes.remove().await
}

/// Clients of a Service lose nothing while its pods, which have opted in, are updated in place, recreated and scaled in.
async fn under_load(fixture: Arc<Fixture>) -> Result<()> {
    serve(&fixture, "web", of_app("web")).await?;
    let labels = json!({CONTROL_LABEL: CONTROL_VALUE});
    let set = MadeSet::create(&fixture, labels, json!({"lifecycle": hooks()})).await?;
    let _operator = MarkerOperator::start(fixture.feed(), ASKING);
    set.until_done(2).await?;
    let clients = crowd(&fixture, "web").await?;
    let changed = async {
        set.update(&fixture.images().v2).await?;
        set.until_done(2).await?;
        set.patch(json!({"updateStrategy": {"type": "ReCreate", "maxSurge": 1, "maxUnavailable": 0}}))
            .await?;
        set.update(&fixture.images().v1).await?;
        set.until_done(2).await?;
        set.patch(json!({"replicas": 1})).await?;
        set.until_done(1).await?;
        // The status does not count a pod that is ending, but clients may still reach it.
        fixture.feed().until_pods("one pod is left", |pods| pods.len() == 1).await
    };
    let changed = changed.await;
    lost_nothing(clients).await?;
    changed.map(drop)
}

/// The containers of a pod whose second one may only be replaced when the first one is Ready.
fn two_containers(first: &str, second: &str) -> Value {
    let container = |name: &str, image: &str, port: u16, priority: &str| {
        json!({
            "name": name, "image": image, "imagePullPolicy": "IfNotPresent",
            "args": ["--listen", format!("0.0.0.0:{port}")],
            "env": [{"name": CONTAINER_PRIORITY, "value": priority}],
        })
    };
    let containers = [container("first", first, 8080, "10"), container("second", second, 8081, "1")];
    json!({"spec": {"containers": containers}})
}

/// The image of the first container cannot be pulled: the second one stays as it is until that is mended.
async fn priorities(fixture: Arc<Fixture>) -> Result<()> {
    let (v1, v2) = (&fixture.images().v1, &fixture.images().v2);
    let spec = json!({"template": two_containers(v1, v1), "replicas": 1});
    let set = MadeSet::create(&fixture, json!({}), spec).await?;
    set.until_done(1).await?;
    let before = fixture.feed().all().first().context("there is no pod")?.clone();
    set.patch(json!({"template": two_containers("podward.local/missing:1", v2)})).await?;
    let says = |status: &CloneSetStatus| {
        let failed = status.conditions.iter().filter(|it| it.type_ == "FailedUpdate");
        failed.into_iter().any(|it| it.message.contains("container first"))
    };
    set.until("it names the container that does not run", says).await?;
    let name = before.name_any();
    let image = |pod: &Pod, name: &str| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        containers.into_iter().find(|it| it.name == name).and_then(|it| it.image.clone())
    };
    let pod = fixture.feed().get(&name).context("the pod was recreated")?;
    ensure!(image(&pod, "second").as_ref() == Some(v1), "the second container was replaced");

    let versions = Arc::<Mutex<Vec<Pod>>>::default();
    let record = Arc::clone(&versions);
    let _watch = observe(fixture.client(), fixture.namespace(), "", move |event| {
        if let PodFeedEvent::Version(pod) = event {
            record.lock().push(*pod);
        }
    })
    .await?;
    set.patch(json!({"template": two_containers(v2, v2)})).await?;
    let status = set.until_done(1).await?;
    ensure!(status.conditions.is_empty(), "{status:?}");
    let pod = fixture.feed().get(&name).context("the pod was recreated")?;
    ensure!(pod.uid() == before.uid() && image(&pod, "second").as_ref() == Some(v2), "{pod:?}");
    let is_ready = |pod: &Pod| {
        let mut statuses = pod.status.iter().flat_map(|it| it.container_statuses.iter().flatten());
        statuses.any(|it| it.name == "first" && it.image == *v2 && it.ready)
    };
    let versions = versions.lock();
    let mut replaced = versions.iter().filter(|pod| image(pod, "second").as_ref() == Some(v2)).peekable();
    ensure!(replaced.peek().is_some(), "no version was seen in which the second container is replaced");
    match replaced.find(|pod| !is_ready(pod)) {
        Some(early) => bail!("the second container was replaced although the first was not Ready: {early:?}"),
        None => Ok(()),
    }
}
