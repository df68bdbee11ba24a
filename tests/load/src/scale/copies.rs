//! Pods in service, made as copies of a pod that came into service through Podward.
//!
//! A copy is two writes of the load generator: a create without the opt-in label, which no webhook sees, and a status
//! write with the label, the conditions and everything else that makes it Ready, as the user of
//! [`kubelets::client`](super::kubelets::client), whose writes to statuses the webhooks leave out. The copy has the
//! finalizers, annotations and gate of its model, so that it is in service from the moment in which it is opted in.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use serde_json::{Value, json};

use crate::fleet::MAX_CONCURRENT;

const PREFIX: &str = "copy";
/// The annotation by which the stages of the simulated kubelet start a pod later: here never, because its status is
/// written by the load generator.
const START_LATER: (&str, &str) = ("simulate.podward.io/start-seconds", "86400");
/// The address before that of the first copy. kwok uses others.
const ADDRESSES: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 0);

/// Makes copies of a pod.
pub(super) struct Copies {
    pods: Api<Pod>,
    model: Value,
    nodes: usize,
}

impl Copies {
    /// Returns copies of the pod `model`, on `nodes` simulated nodes.
    pub(super) async fn of(model: &str, pods: Api<Pod>, nodes: usize) -> Result<Copies> {
        let pod = pods.get(model).await.with_context(|| format!("read pod {model}"))?;
        Ok(Copies { pods, model: serde_json::to_value(pod)?, nodes })
    }

    /// Makes `count` pods and returns their names.
    pub(super) async fn make(&self, count: usize) -> Result<Vec<String>> {
        futures::stream::iter(0..count)
            .map(|number| self.make_one(number))
            .buffered(MAX_CONCURRENT)
            .try_collect()
            .await
    }

    async fn make_one(&self, number: usize) -> Result<String> {
        let name = format!("{PREFIX}-{number}");
        let pod = serde_json::from_value(self.manifest(&name, number))
            .with_context(|| format!("put together pod {name}"))?;
        let made = self.pods.create(&PostParams::default(), &pod).await;
        made.with_context(|| format!("make pod {name}"))?;
        let patch = Patch::Merge(json!({
            "metadata": {"labels": {CONTROL_LABEL: CONTROL_VALUE}},
            "status": self.status(number)?,
        }));
        let written = self.pods.patch_status(&name, &PatchParams::default(), &patch).await;
        written.with_context(|| format!("put pod {name} into service"))?;
        Ok(name)
    }

    fn manifest(&self, name: &str, number: usize) -> Value {
        let of_model = &self.model["metadata"];
        let mut metadata = json!({
            "name": name,
            "labels": of_model["labels"],
            "annotations": of_model["annotations"],
            "finalizers": of_model["finalizers"],
        });
        if let Some(labels) = metadata["labels"].as_object_mut() {
            labels.remove(CONTROL_LABEL);
        }
        metadata["labels"]["app"] = json!(PREFIX);
        metadata["annotations"][START_LATER.0] = json!(START_LATER.1);
        let mut spec = self.model["spec"].clone();
        spec["nodeName"] = json!(format!("simulated-{}", number % self.nodes));
        json!({"metadata": metadata, "spec": spec})
    }

    fn status(&self, number: usize) -> Result<Value> {
        let address = Ipv4Addr::from_bits(ADDRESSES.to_bits() + u32::try_from(number)? + 1).to_string();
        let mut status = self.model["status"].clone();
        status["podIP"] = json!(address);
        status["podIPs"] = json!([{"ip": address}]);
        Ok(status)
    }
}
