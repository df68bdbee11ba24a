//! Services, their pods, and clients.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use demo_client::{Connections, LoadReport};
use k8s_openapi::api::{
    core::v1::{Pod, ResourceQuota, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use podward_core::hooks::hook_finalizer;
use podward_core::keys;
use podward_e2e::Fixture;
use podward_images::DemoImages;
use podward_support::{LoadClient, LoadClientOptions, LoadTargets, WAIT, pods, within};
use serde_json::{Value, json};

/// The name of the traffic-controller's hook.
pub(crate) const HOOK: &str = "traffic-controller";
/// A low request rate. No request may be lost, and the machine runs other tests.
const RATE: u32 = 50;
/// The path of requests. A request takes a moment, so that some are always in flight.
const PATH: &str = "/slow?ms=5";

/// Returns the labels of a pod that is opted in and belongs to `app`.
pub(crate) fn labels(app: &str) -> Value {
    json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE, "app": app})
}

/// Returns the `spec` of a plain Service for the pods of `app`.
pub(crate) fn of_app(app: &str) -> Value {
    json!({"selector": {"app": app}, "ports": [{"port": 80, "targetPort": 8080}]})
}

/// Makes a Service.
pub(crate) async fn serve(fixture: &Fixture, name: &str, spec: Value) -> Result<()> {
    let service = json!({"metadata": {"name": name}, "spec": spec});
    let service = serde_json::from_value(service).context("describe a Service")?;
    let made = services(fixture).create(&PostParams::default(), &service).await;
    made.map(drop).with_context(|| format!("make Service {name}"))
}

pub(crate) fn services(fixture: &Fixture) -> Api<Service> {
    Api::namespaced(fixture.client(), fixture.namespace())
}

/// Creates pods of `app`, and waits until they are available.
pub(crate) async fn in_service<const N: usize>(fixture: &Fixture, app: &str, names: [&str; N]) -> Result<()> {
    for name in names {
        fixture.create_with(name, &labels(app), &json!({})).await?;
    }
    for name in names {
        fixture.until_available(name).await?;
    }
    Ok(())
}

/// Starts clients that open a connection through the Service for each request.
pub(crate) async fn crowd(fixture: &Fixture, service: &str) -> Result<LoadClient> {
    let found = services(fixture).get(service).await.with_context(|| format!("read Service {service}"))?;
    let address = found.spec.and_then(|spec| spec.cluster_ip).context("the Service has no address")?;
    let options = LoadClientOptions {
        timeout: LoadClientOptions::PATIENT,
        program: DemoImages::client("dev").await?,
        image: fixture.images().v1.clone(),
        targets: LoadTargets::Service(SocketAddr::new(
            address.parse().context("understand the Service's address")?,
            80,
        )),
        node: None,
        path: PATH.to_owned(),
        connections: vec![Connections::New],
        rate: RATE,
    };
    LoadClient::start(fixture.cluster(), options).await
}

/// Stops the clients. They must not have lost a request.
pub(crate) async fn lost_nothing(crowd: LoadClient) -> Result<()> {
    crowd.stop().await?.loads.iter().try_for_each(has_lost_nothing)
}

/// Checks that there were requests, and that none was lost.
pub(crate) fn has_lost_nothing(load: &LoadReport) -> Result<()> {
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
        "lost {failed} of {requests} requests with {} connections: {reasons:?}; by second of {:.0}: {seconds:?}",
        load.connections,
        load.seconds
    );
    ensure!(requests > 0, "there were no requests");
    Ok(())
}

/// Returns the traffic-controller's record on a pod: level and detail.
pub(crate) fn evidence(pod: &Pod) -> Result<(String, String)> {
    let text = pod.annotations().get(keys::EVIDENCE).context("the pod has no evidence on it")?;
    let record: Value = serde_json::from_str(text).with_context(|| format!("understand {text}"))?;
    let part = |name: &str| record[HOOK][name].as_str().map(ToOwned::to_owned);
    let both = part("level").zip(part("detail"));
    both.with_context(|| format!("{text} says nothing of the traffic-controller"))
}

/// Requires that the record has this level and contains this text.
pub(crate) fn proves(pod: &Pod, level: &str, words: &[&str]) -> Result<()> {
    let (found, detail) = evidence(pod)?;
    ensure!(found == level, "the evidence is {found}, not {level}: {detail}");
    for word in words {
        ensure!(detail.contains(word), "the evidence doesn't say {word:?}: {detail}");
    }
    Ok(())
}

/// Checks the evidence of a pod that is in no Service. The first ten minutes after a traffic-controller has started, it cannot
/// know whether the pod has left one before.
pub(crate) fn has_no_service(pod: &Pod) -> Result<()> {
    let words = &["no Service selects the pod"];
    proves(pod, "PROVEN", words).or_else(|_| {
        proves(pod, "BOUNDED", &[words[0], "may have left a Service before this process started"])
    })
}

/// Returns whether the traffic-controller holds the pod.
pub(crate) fn is_held(pod: &Pod) -> bool {
    pods::holders(pod).any(|holder| holder == hook_finalizer(HOOK))
}

/// Returns what the pod waits for.
pub(crate) fn waits_for(pod: &Pod) -> String {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ours = conditions.filter(|condition| condition.type_ == keys::LIFECYCLE_CONDITION);
    ours.filter_map(|condition| condition.message.as_deref()).collect::<Vec<_>>().join("; ")
}

/// Waits until the pod waits for something whose text contains all of `words`.
pub(crate) async fn until_message_contains(fixture: &Fixture, pod: &str, words: &[&str]) -> Result<Arc<Pod>> {
    let says = |pod: &Pod| words.iter().all(|word| waits_for(pod).contains(word));
    fixture.feed().until(pod, &format!("it says {words:?}"), says).await
}

/// Deletes the pod, which must be rejected for now.
pub(crate) async fn ask_to_delete(fixture: &Fixture, pod: &str) -> Result<()> {
    match fixture.api().delete(pod, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 429 => Ok(()),
        Err(error) => Err(error).with_context(|| format!("delete pod {pod}")),
        Ok(_) => bail!("pod {pod} was deleted at once, traffic or no traffic"),
    }
}

/// Waits until the pod is gone.
pub(crate) async fn until_gone(fixture: &Fixture, pod: &str) -> Result<()> {
    let what = format!("pod {pod} is gone");
    let gone = fixture.feed().until_pods(&what, |pods| pods.iter().all(|other| other.name_any() != pod));
    gone.await.map(drop)
}

/// Runs a whole operation that changes nothing. Returns the pod as it was when it had the permission.
pub(crate) async fn operate(fixture: &Fixture, pod: &str) -> Result<Arc<Pod>> {
    let operator = fixture.operator("look", "inspect");
    operator.begin(pod).await?;
    let allowed = operator.await_operate(pod).await?;
    operator.finish(pod).await?;
    operator.await_end(pod).await?;
    Ok(allowed)
}

/// A Service whose slices this test writes. It can keep a pod listed, or remove it.
pub(crate) struct OwnSlice<'s> {
    fixture: &'s Fixture,
    service: String,
}

impl<'s> OwnSlice<'s> {
    /// Creates the Service, without a selector.
    pub(crate) async fn open(fixture: &'s Fixture, service: &str) -> Result<Self> {
        serve(fixture, service, json!({"ports": [{"port": 80, "targetPort": 8080}]})).await?;
        Ok(Self { fixture, service: service.to_owned() })
    }

    /// Writes the slice of the pod, with a reference to it, or with its address alone, as users may do.
    pub(crate) async fn show(&self, pod: &str, by_reference: bool, ready: bool) -> Result<()> {
        let known = self.fixture.feed().get(pod).with_context(|| format!("there is no pod {pod}"))?;
        let address = known.status.as_ref().and_then(|status| status.pod_ip.clone());
        let mut endpoint = json!({"addresses": [address.context("the pod has no address")?], "conditions": {"ready": ready}});
        if by_reference {
            endpoint["targetRef"] = json!({"kind": "Pod", "namespace": self.fixture.namespace(), "name": pod, "uid": known.uid()});
        }
        self.write(&format!("{}-{pod}", self.service), "IPv4", endpoint).await
    }

    /// Writes a slice of IPv6 that refers to the pod.
    pub(crate) async fn show_v6(&self, pod: &str, ready: bool) -> Result<()> {
        let uid = self.fixture.feed().get(pod).and_then(|pod| pod.uid());
        let endpoint = json!({
            "addresses": ["fd00:10:244::7"],
            "conditions": {"ready": ready},
            "targetRef": {"kind": "Pod", "namespace": self.fixture.namespace(), "name": pod, "uid": uid},
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
        let slices: Api<EndpointSlice> = Api::namespaced(self.fixture.client(), self.fixture.namespace());
        let written = slices.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&slice)).await;
        written.map(drop).with_context(|| format!("write EndpointSlice {name}"))
    }
}

/// While this quota exists, no slice can be created in the test's namespace, so that a new Service lists no pod.
pub(crate) async fn forbid_slices(fixture: &Fixture) -> Result<()> {
    let name = "no-slices";
    let hard = json!({"count/endpointslices.discovery.k8s.io": "0"});
    let quota = json!({"metadata": {"name": name}, "spec": {"hard": hard}});
    let quota = serde_json::from_value(quota).context("describe a quota")?;
    let quotas = quotas(fixture);
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

/// Allows slices again.
pub(crate) async fn allow_slices(fixture: &Fixture) -> Result<()> {
    let deleted = quotas(fixture).delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    deleted.map(drop).context("delete the quota")
}

fn quotas(fixture: &Fixture) -> Api<ResourceQuota> {
    Api::namespaced(fixture.client(), fixture.namespace())
}

/// Waits until a slice of the Service lists the pod.
pub(crate) async fn until_listed(fixture: &Fixture, service: &str, pod: &str) -> Result<()> {
    let slices: Api<EndpointSlice> = Api::namespaced(fixture.client(), fixture.namespace());
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
