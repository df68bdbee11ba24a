//! Reading pods, and writing their labels and annotations.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use podward_proto::v1;
use serde_json::{Map, Value, json};
use tonic::{Code, Status};

use super::change::Decision;
use super::registry::is_object_name;
use super::status::timely;
use crate::cached_pod::{CachedPod, PodKey};

/// Pods change often while they come up; after so many changes in between the caller is to try again.
const TRIES: u32 = 8;

/// Which pod a caller means.
#[derive(Clone, Debug)]
pub(super) struct Which {
    pub(super) key: PodKey,
    pub(super) uid: Option<String>,
}

impl Which {
    /// Reads what came over the wire.
    pub(super) fn of(reference: Option<v1::PodReference>) -> Result<Self, Status> {
        let v1::PodReference { namespace, name, uid } =
            reference.ok_or_else(|| Status::invalid_argument("pod: it is missing"))?;
        for (field, text) in [("namespace", &namespace), ("name", &name)] {
            if !is_object_name(text) {
                return Err(Status::invalid_argument(format!("pod.{field}: it is missing, or can't be one")));
            }
        }
        Ok(Self { key: PodKey { namespace, name }, uid: Some(uid).filter(|uid| !uid.is_empty()) })
    }

    /// `pod`, if it is the one that is meant.
    pub(super) fn check(&self, pod: &CachedPod) -> Result<(), Status> {
        match &self.uid {
            Some(uid) if uid != pod.uid() => Err(Status::not_found(format!(
                "pod {} with UID {uid} is gone; there is another by that name, with UID {}",
                self.key,
                pod.uid()
            ))),
            _ => Ok(()),
        }
    }

    pub(super) fn gone(&self) -> Status {
        Status::not_found(format!("there is no pod {}", self.key))
    }
}

/// Pods, read and written live.
#[derive(Clone)]
pub(super) struct Pods {
    client: Client,
}

impl Pods {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    pub(super) fn api(&self, key: &PodKey) -> Api<CachedPod> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    /// The pod as it is now.
    pub(super) async fn read(&self, which: &Which) -> Result<CachedPod, Status> {
        let api = self.api(&which.key);
        let pod = timely(|| format!("read pod {}", which.key), api.get_opt(&which.key.name)).await?;
        let pod = pod.ok_or_else(|| which.gone())?;
        which.check(&pod)?;
        Ok(pod)
    }

    /// Changes the pod's labels or annotations by what `decide` makes of it, and again if it has changed meanwhile. Gives it as it is then.
    pub(super) async fn change(
        &self,
        which: &Which,
        decide: impl Fn(&CachedPod) -> Result<Decision, Status>,
    ) -> Result<CachedPod, Status> {
        let mut tried = 0;
        loop {
            let pod = self.read(which).await?;
            let (field, changes) = match decide(&pod)? {
                Decision::Nothing => return Ok(pod),
                Decision::Change(changes) => ("labels", changes.to_merge_patch()),
                Decision::Annotate(texts) => ("annotations", merge_patch(texts)),
            };
            match self.write(&pod, field, changes).await {
                Err(status) if status.code() == Code::Aborted && tried < TRIES => {
                    tried += 1;
                    let base = Duration::from_millis(5).saturating_mul(1 << tried);
                    tokio::time::sleep(base.mul_f64(0.5 + fastrand::f64())).await;
                }
                other => return other,
            }
        }
    }

    async fn write(
        &self,
        pod: &CachedPod,
        field: &str,
        changes: Map<String, Value>,
    ) -> Result<CachedPod, Status> {
        let key = pod.key();
        let patch = Patch::Merge(body(pod, field, changes));
        let params = PatchParams::default();
        // To pods/status, which keeps the metadata that comes with it: so no right to change pods is needed.
        let write = async { self.api(&key).patch_status(&key.name, &params, &patch).await };
        timely(|| format!("write {field} of pod {key}"), write).await
    }
}

fn body(pod: &CachedPod, field: &str, changes: Map<String, Value>) -> Value {
    json!({"metadata": {"uid": pod.uid(), "resourceVersion": pod.resource_version(), field: changes}})
}

fn merge_patch(texts: Vec<(&'static str, Option<String>)>) -> Map<String, Value> {
    texts.into_iter().map(|(key, text)| (key.to_owned(), Value::from(text))).collect()
}

/// Refuses pods that no operation can begin on.
pub(super) fn must_be_open(pod: &CachedPod) -> Result<(), Status> {
    let view = pod.view();
    if !view.is_controlled() {
        return Err(Status::failed_precondition(format!(
            "pod {} has not opted in; it needs the label {CONTROL_LABEL}={CONTROL_VALUE} from its template",
            pod.key()
        )));
    }
    if view.terminating {
        return Err(Status::failed_precondition(format!("pod {} is being deleted", pod.key())));
    }
    Ok(())
}
