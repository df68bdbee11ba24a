//! Services, pods behind them, and the crowds that ask them.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use demo_client::Connections;
use k8s_openapi::api::{
    core::v1::{Pod, ResourceQuota, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use podward_core::{hooks::finalizer_of, keys};
use podward_e2e::Scene;
use podward_support::{DemoImages, Load, LoadOptions, WAIT, pods, within};
use serde_json::{Value, json};

/// The name of the traffic-controller's hook.
pub(crate) const HOOK: &str = "traffic-controller";
/// Few requests: what counts is that none is lost, and the machine has other tests to run.
const RATE: u32 = 50;
/// Every request takes a moment, as real ones do, so that some are always in flight.
const PATH: &str = "/slow?ms=5";

/// The labels of a pod that has opted in and is an `app`.
pub(crate) fn labels(app: &str) -> Value {
    json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE, "app": app})
}

/// The `spec` of a plain Service of the pods of `app`.
pub(crate) fn of_app(app: &str) -> Value {
    json!({"selector": {"app": app}, "ports": [{"port": 80, "targetPort": 8080}]})
}

/// Makes a Service.
pub(crate) async fn serve(scene: &Scene, name: &str, spec: Value) -> Result<()> {
    let service = json!({"metadata": {"name": name}, "spec": spec});
    let service = serde_json::from_value(service).context("describe a Service")?;
    let made = services(scene).create(&PostParams::default(), &service).await;
    made.map(drop).with_context(|| format!("make Service {name}"))
}

pub(crate) fn services(scene: &Scene) -> Api<Service> {
    Api::namespaced(scene.client(), scene.namespace())
}

/// Makes pods of `app`, and waits until they are available.
pub(crate) async fn in_service<const N: usize>(scene: &Scene, app: &str, names: [&str; N]) -> Result<()> {
    for name in names {
        scene.create_with(name, &labels(app), &json!({})).await?;
    }
    for name in names {
        scene.until_available(name).await?;
    }
    Ok(())
}

/// A crowd that opens a connection through the Service for each request.
pub(crate) async fn crowd(scene: &Scene, service: &str) -> Result<Load> {
    let found = services(scene).get(service).await.with_context(|| format!("read Service {service}"))?;
    let address = found.spec.and_then(|spec| spec.cluster_ip).context("the Service has no address")?;
    let options = LoadOptions {
        program: DemoImages::client("dev").await?,
        image: scene.images().v1.clone(),
        target: SocketAddr::new(address.parse().context("understand the Service's address")?, 80),
        path: PATH.to_owned(),
        connections: vec![Connections::New],
        rate: RATE,
    };
    Load::start(scene.cluster(), options).await
}

/// Ends a crowd that must not have lost a single request.
pub(crate) async fn lost_nothing(crowd: Load) -> Result<()> {
    for load in crowd.stop().await?.loads {
        let (failed, requests, reasons) = (load.failed, load.requests, &load.reasons);
        let seconds: Vec<(usize, u64)> = load
            .series
            .iter()
            .map(|second| second.failed)
            .enumerate()
            .filter(|(_, failed)| *failed > 0)
            .collect();
        ensure!(
            failed == 0,
            "lost {failed} of {requests} requests: {reasons:?}; by second of {:.0}: {seconds:?}",
            load.seconds
        );
        ensure!(requests > 0, "nobody asked anything");
    }
    Ok(())
}

/// What the record on a pod says of the traffic-controller: level and detail.
pub(crate) fn evidence(pod: &Pod) -> Result<(String, String)> {
    let text = pod.annotations().get(keys::EVIDENCE).context("the pod has no evidence on it")?;
    let record: Value = serde_json::from_str(text).with_context(|| format!("understand {text}"))?;
    let part = |name: &str| record[HOOK][name].as_str().map(ToOwned::to_owned);
    let both = part("level").zip(part("detail"));
    both.with_context(|| format!("{text} says nothing of the traffic-controller"))
}

/// The record must be of this level and have these words.
pub(crate) fn proves(pod: &Pod, level: &str, words: &[&str]) -> Result<()> {
    let (found, detail) = evidence(pod)?;
    ensure!(found == level, "the evidence is {found}, not {level}: {detail}");
    for word in words {
        ensure!(detail.contains(word), "the evidence doesn't say {word:?}: {detail}");
    }
    Ok(())
}

/// Whether the traffic-controller holds the pod.
pub(crate) fn is_held(pod: &Pod) -> bool {
    pods::holders(pod).any(|holder| holder == finalizer_of(HOOK))
}

/// What the pod says that it waits for.
pub(crate) fn waits_for(pod: &Pod) -> String {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ours = conditions.filter(|condition| condition.type_ == keys::LIFECYCLE_CONDITION);
    ours.filter_map(|condition| condition.message.as_deref()).collect::<Vec<_>>().join("; ")
}

/// Waits until the pod says that it waits for something, in words that have all of `words` in them.
pub(crate) async fn until_it_says(scene: &Scene, pod: &str, words: &[&str]) -> Result<Arc<Pod>> {
    let says = |pod: &Pod| words.iter().all(|word| waits_for(pod).contains(word));
    scene.feed().until(pod, &format!("it says {words:?}"), says).await
}

/// Asks for the pod's deletion, which must be refused for now.
pub(crate) async fn ask_to_delete(scene: &Scene, pod: &str) -> Result<()> {
    match scene.api().delete(pod, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 429 => Ok(()),
        Err(error) => Err(error).with_context(|| format!("delete pod {pod}")),
        Ok(_) => bail!("pod {pod} was deleted at once, traffic or no traffic"),
    }
}

/// Waits until the pod is gone.
pub(crate) async fn until_gone(scene: &Scene, pod: &str) -> Result<()> {
    let what = format!("pod {pod} is gone");
    let gone = scene.feed().until_pods(&what, |pods| pods.iter().all(|other| other.name_any() != pod));
    gone.await.map(drop)
}

/// A whole operation that only looks: begun, allowed, finished, over. Gives the pod as it was when it was allowed.
pub(crate) async fn operate(scene: &Scene, pod: &str) -> Result<Arc<Pod>> {
    let operator = scene.operator("look", "inspect");
    operator.begin(pod).await?;
    let allowed = operator.await_operate(pod).await?;
    operator.finish(pod).await?;
    operator.await_end(pod).await?;
    Ok(allowed)
}

/// A Service whose slices this test writes: it can keep a pod shown, or take it out.
pub(crate) struct OwnSlice<'s> {
    scene: &'s Scene,
    service: String,
}

impl<'s> OwnSlice<'s> {
    /// Makes the Service, without a selector.
    pub(crate) async fn open(scene: &'s Scene, service: &str) -> Result<Self> {
        serve(scene, service, json!({"ports": [{"port": 80, "targetPort": 8080}]})).await?;
        Ok(Self { scene, service: service.to_owned() })
    }

    /// Writes the slice of the pod: with a reference to it, or, as people write them, by its address alone.
    pub(crate) async fn show(&self, pod: &str, by_reference: bool, ready: bool) -> Result<()> {
        let known = self.scene.feed().get(pod).with_context(|| format!("there is no pod {pod}"))?;
        let address = known.status.as_ref().and_then(|status| status.pod_ip.clone());
        let mut endpoint = json!({"addresses": [address.context("the pod has no address")?], "conditions": {"ready": ready}});
        if by_reference {
            endpoint["targetRef"] =
                json!({"kind": "Pod", "namespace": self.scene.namespace(), "name": pod, "uid": known.uid()});
        }
        self.write(&format!("{}-{pod}", self.service), "IPv4", endpoint).await
    }

    /// Writes a slice of IPv6 that refers to the pod.
    pub(crate) async fn show_v6(&self, pod: &str, ready: bool) -> Result<()> {
        let uid = self.scene.feed().get(pod).and_then(|pod| pod.uid());
        let endpoint = json!({
            "addresses": ["fd00:10:244::7"],
            "conditions": {"ready": ready},
            "targetRef": {"kind": "Pod", "namespace": self.scene.namespace(), "name": pod, "uid": uid},
        });
        self.write(&format!("{}-{pod}-v6", self.service), "IPv6", endpoint).await
    }

    async fn write(&self, name: &str, family: &str, endpoint: Value) -> Result<()> {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": self.service}},
            "addressType": family,
            "endpoints": [endpoint],
            "ports": [{"name": "", "port": 8080}],
        });
        let slices: Api<EndpointSlice> = Api::namespaced(self.scene.client(), self.scene.namespace());
        let written = slices.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&slice)).await;
        written.map(drop).with_context(|| format!("write EndpointSlice {name}"))
    }
}

/// While it is there no slice can be made in the test's namespace, so that a new Service names no pod.
pub(crate) async fn forbid_slices(scene: &Scene) -> Result<()> {
    let name = "no-slices";
    let hard = json!({"count/endpointslices.discovery.k8s.io": "0"});
    let quota = json!({"metadata": {"name": name}, "spec": {"hard": hard}});
    let quota = serde_json::from_value(quota).context("describe a quota")?;
    let quotas = quotas(scene);
    quotas.create(&PostParams::default(), &quota).await.context("make a quota")?;
    let counted = async {
        while quotas.get(name).await?.status.and_then(|status| status.hard).is_none_or(|hard| hard.is_empty())
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    };
    within(WAIT, || "the quota to be counted".to_owned(), counted).await
}

/// Slices can be made again.
pub(crate) async fn allow_slices(scene: &Scene) -> Result<()> {
    let deleted = quotas(scene).delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    deleted.map(drop).context("delete the quota")
}

fn quotas(scene: &Scene) -> Api<ResourceQuota> {
    Api::namespaced(scene.client(), scene.namespace())
}

/// Waits until a slice of the Service names the pod.
pub(crate) async fn until_listed(scene: &Scene, service: &str, pod: &str) -> Result<()> {
    let slices: Api<EndpointSlice> = Api::namespaced(scene.client(), scene.namespace());
    let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
    let listed = async {
        loop {
            let slices = slices.list(&of_service).await.context("list slices")?;
            let mut endpoints = slices.items.iter().flat_map(|slice| &slice.endpoints);
            let names =
                |target: &k8s_openapi::api::core::v1::ObjectReference| target.name.as_deref() == Some(pod);
            if endpoints.any(|endpoint| endpoint.target_ref.as_ref().is_some_and(names)) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within(WAIT, || format!("a slice of Service {service} that names pod {pod}"), listed).await
}
