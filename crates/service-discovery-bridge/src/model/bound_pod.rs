//! The fields of a pod that bindings read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as corev1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource;
use podward_api::discovery_binding::PodField;
use podward_core::cloneset::State;
use podward_core::keys::{
    AVAILABLE_CONDITIONS, DELETE_OPERATION, DELETION_REQUEST, SERVICE_READY_GATE, TO_DELETE,
};
use podward_core::{ConditionStatus, Operations, PodFacts, PodView, desired_gate};
use serde::Deserialize;

use super::conditions::{Condition, silent_since};
use super::kruise::KruisePod;

/// A pod as the API server sends it, without what no binding reads.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = corev1::Pod)]
pub(crate) struct PodObject {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_name: Option<String>,
    #[serde(default)]
    readiness_gates: Option<Vec<Gate>>,
    #[serde(default)]
    containers: Option<Vec<Container>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Gate {
    condition_type: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Container {
    #[serde(default)]
    ports: Option<Vec<Port>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    #[serde(default)]
    name: Option<String>,
    container_port: u16,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    phase: Option<String>,
    #[serde(default, rename = "podIP")]
    pod_ip: Option<String>,
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
}

/// What a pod's operations, or its condition, want of consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// The pod has ended, or its containers are being stopped.
    Gone,
    /// Its node is lost.
    Lost,
    /// The binding does not select it any more, and deregisters its instance.
    Left,
    /// An operation after which it continues to exist takes it out of service.
    OutForUpdate,
    /// An operation that ends in its deletion takes it out of service.
    OutForDelete,
    /// It stays as it is: the result of an operation is being checked.
    Unchanged,
    /// It is to be in service, and its containers are ready.
    InService,
    /// It is to be in service, but it is not ready.
    NotReady,
}

/// The fields of a pod that bindings read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BoundPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Empty until the pod has an address.
    pub(crate) ip: String,
    pub(crate) node: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) ports: Vec<(String, u16)>,
    /// True if the pod has opted in, so that hooks are asked about it.
    pub(crate) controlled: bool,
    pub(crate) demand: Demand,
    /// Since when its conditions are such as only a lost node leaves them.
    pub(crate) silent_since: Option<Timestamp>,
    /// The finalizers of consumers.
    pub(crate) finalizers: Vec<String>,
    /// What the protocol of OpenKruise says, if one of its workloads manages the pod.
    pub(crate) kruise: Option<KruisePod>,
}

/// Longer annotations are no values for a registry. Those that tools write can have many kilobytes.
const MAX_ANNOTATION: usize = 256;

impl BoundPod {
    /// Returns the fields of `object`.
    pub(crate) fn new(object: PodObject) -> Self {
        let PodObject { metadata, spec, status } = object;
        let kruise = KruisePod::of(&metadata);
        let labels = metadata.labels.unwrap_or_default();
        let annotations = metadata.annotations.unwrap_or_default();
        let finalizers = metadata.finalizers.unwrap_or_default();
        let condition = |name: &str| {
            let found = status.conditions.iter().flatten().find(|condition| condition.type_ == name);
            found.map(|condition| ConditionStatus::parse(&condition.status))
        };
        let is_true = |name| condition(name) == Some(ConditionStatus::True);
        let view = PodView {
            labels: &labels,
            available_conditions: annotations.get(AVAILABLE_CONDITIONS).map(String::as_str),
            finalizers: &finalizers,
            has_gate: spec
                .readiness_gates
                .iter()
                .flatten()
                .any(|gate| gate.condition_type == SERVICE_READY_GATE),
            gate: condition(SERVICE_READY_GATE),
            ready: is_true("Ready"),
            terminating: metadata.deletion_timestamp.is_some(),
            facts: PodFacts::default(),
        };
        let finished = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let leads_to_deletion = annotations.contains_key(DELETION_REQUEST) || labels.contains_key(TO_DELETE);
        let demand = match finished || view.terminating {
            true => Demand::Gone,
            false => {
                let containers_ready = is_true("ContainersReady");
                let own = demand(&view, containers_ready, leads_to_deletion);
                kruise.as_ref().map_or(own, |kruise| with_kruise(own, kruise.state, containers_ready))
            }
        };
        let controlled = view.is_controlled();
        let gates = spec.readiness_gates.iter().flatten().map(|gate| gate.condition_type.as_str());
        let silent_since = silent_since(status.conditions.as_deref().unwrap_or_default(), gates);
        let finalizers = view.protection_finalizers().map(ToOwned::to_owned).collect();
        let ports = spec.containers.unwrap_or_default().into_iter().flat_map(|container| {
            container
                .ports
                .unwrap_or_default()
                .into_iter()
                .map(|port| (port.name.unwrap_or_default(), port.container_port))
        });
        Self {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            ip: status.pod_ip.unwrap_or_default(),
            node: spec.node_name.unwrap_or_default(),
            ports: ports.collect(),
            controlled,
            demand,
            silent_since,
            finalizers,
            kruise,
            annotations: annotations.into_iter().filter(|(_, text)| text.len() <= MAX_ANNOTATION).collect(),
            labels,
        }
    }

    /// Returns the value of a field, or `None` if the pod does not have it.
    pub(crate) fn field(&self, field: &PodField) -> Option<Cow<'_, str>> {
        let known = |text: &'_ str| (!text.is_empty()).then(|| text.to_owned()).map(Cow::Owned);
        match field {
            PodField::Name => known(&self.name),
            PodField::Namespace => known(&self.namespace),
            PodField::Uid => known(&self.uid),
            PodField::Ip => known(&self.ip),
            PodField::Node => known(&self.node),
            PodField::Label(key) => self.labels.get(key).map(|text| Cow::Borrowed(text.as_str())),
            PodField::Annotation(key) => self.annotations.get(key).map(|text| Cow::Borrowed(text.as_str())),
        }
    }

    /// Returns the number of a port, or `None` if the pod declares no port of that name.
    pub(crate) fn port(&self, port: &IntOrString) -> Option<u16> {
        match port {
            IntOrString::Int(number) => u16::try_from(*number).ok(),
            IntOrString::String(name) => {
                self.ports.iter().find(|(declared, _)| declared == name).map(|(_, number)| *number)
            }
        }
    }
}

fn demand(pod: &PodView<'_>, containers_ready: bool, leads_to_deletion: bool) -> Demand {
    if !pod.is_controlled() {
        return if pod.ready { Demand::InService } else { Demand::NotReady };
    }
    let operations = Operations::parse(pod.labels);
    match desired_gate(pod, &operations) {
        Some(true) if containers_ready => Demand::InService,
        Some(true) => Demand::NotReady,
        Some(false) if leads_to_deletion || is_deletion(&operations) => Demand::OutForDelete,
        Some(false) => Demand::OutForUpdate,
        None => Demand::Unchanged,
    }
}

/// Returns what an operation and the protocol of OpenKruise want together: the one that takes the pod out of service counts.
fn with_kruise(own: Demand, state: State, containers_ready: bool) -> Demand {
    match (own, state) {
        (Demand::Gone | Demand::OutForUpdate | Demand::OutForDelete, _) => own,
        (_, State::PreparingDelete) => Demand::OutForDelete,
        (_, State::PreparingUpdate | State::Updating) => Demand::OutForUpdate,
        // Its readiness may wait for the answer.
        (Demand::NotReady, State::PreparingNormal | State::Updated) if containers_ready => Demand::InService,
        _ => own,
    }
}

/// Returns whether an operation ends in the deletion of the pod, by the types that Podward and KusionStack use.
fn is_deletion(operations: &Operations<'_>) -> bool {
    const TYPES: [&str; 4] = [DELETE_OPERATION, "delete", "scale-in", "replace"];
    operations.iter().any(|(id, operation)| {
        operation.is_live()
            && (id == DELETE_OPERATION
                || operations.type_of(id).is_some_and(|kind| TYPES.contains(&kind.as_ref())))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn demand_of(labels: Value, conditions: Value, more: Value) -> Demand {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": labels},
            "spec": {"readinessGates": [{"conditionType": SERVICE_READY_GATE}]},
            "status": {"conditions": conditions},
        });
        for (key, value) in more.as_object().unwrap() {
            let (part, field) = key.split_once('.').unwrap();
            pod[part][field] = value.clone();
        }
        BoundPod::new(serde_json::from_value(pod).unwrap()).demand
    }

    #[test]
    fn demands() {
        let ready = json!([{"type": "ContainersReady", "status": "True"}]);
        let fully = json!([{"type": "Ready", "status": "True"}]);
        let control = json!({"kusionstack.io/control": "true"});
        let with = |more: Value| {
            let mut labels = control.clone();
            labels.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            labels
        };
        let operation = |kind: &str| {
            with(json!({
                "operating.podopslifecycle.kusionstack.io/x": "1",
                "operation-type.podopslifecycle.kusionstack.io/x": kind,
                "preparing.podopslifecycle.kusionstack.io/x": "1",
            }))
        };
        let none = json!({});
        assert_eq!(demand_of(control.clone(), ready.clone(), none.clone()), Demand::InService);
        assert_eq!(demand_of(control.clone(), json!([]), none.clone()), Demand::NotReady);
        assert_eq!(demand_of(operation("update"), ready.clone(), none.clone()), Demand::OutForUpdate);
        assert_eq!(demand_of(operation("scale-in"), ready.clone(), none.clone()), Demand::OutForDelete);
        let requested = json!({"metadata.annotations": {DELETION_REQUEST: "{}"}});
        assert_eq!(demand_of(operation("update"), ready.clone(), requested), Demand::OutForDelete);
        // Without the label, only Ready counts.
        assert_eq!(demand_of(json!({}), ready.clone(), none.clone()), Demand::NotReady);
        assert_eq!(demand_of(json!({}), fully.clone(), none), Demand::InService);
        for (state, wanted) in [
            ("Normal", Demand::NotReady),
            ("Updated", Demand::InService),
            ("Updating", Demand::OutForUpdate),
            ("PreparingDelete", Demand::OutForDelete),
        ] {
            let owner = json!({"metadata.ownerReferences": [{
                "apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet", "name": "s", "uid": "u", "controller": true,
            }]});
            let labels = json!({"lifecycle.apps.kruise.io/state": state});
            assert_eq!(demand_of(labels, ready.clone(), owner), wanted, "{state}");
        }
        let terminating = json!({"metadata.deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(demand_of(control, ready, terminating), Demand::Gone);
        assert_eq!(demand_of(json!({}), fully, json!({"status.phase": "Succeeded"})), Demand::Gone);
    }
}
