//! What keeps a registry in step with pods where Podward is not installed: a program that watches pods, registers those
//! that are ready, and deregisters those that are not, or that are being deleted. Programs such as the catalog sync of
//! consul-k8s do the same, with pauses of many seconds. This one has none.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_registries::{Change, Instance, Owner, Registry, ServiceKey};
use tokio::task::JoinHandle;

use crate::{feed::PodFeed, pods};

/// The port of the pods.
const PORT: u16 = 8080;
/// The mark of its instances.
const SYNCER: &str = "syncer";
/// The pause before a change that failed is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// A running syncer. It ends when it is dropped, and leaves the registry as it is.
#[derive(Debug)]
pub(super) struct Syncer(JoinHandle<()>);

impl Syncer {
    pub(super) fn start(feed: PodFeed, registry: Arc<dyn Registry>, service: ServiceKey) -> Self {
        Self(tokio::spawn(synchronize(feed, registry, service)))
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the syncer has registered, by the UID of the pod.
type Registered = BTreeMap<String, Instance>;

async fn synchronize(mut feed: PodFeed, registry: Arc<dyn Registry>, service: ServiceKey) {
    let mut registered = Registered::new();
    let renewal = registry.capabilities().renewal;
    let mut renewed = tokio::time::Instant::now();
    loop {
        let changes = changes(&service, &registered, &feed.all());
        let mut is_done = true;
        for (change, result) in changes.iter().zip(registry.write(&changes).await) {
            match (change, result) {
                (Change::Register(_, instance), Ok(())) => {
                    registered.insert(instance.id.clone(), instance.clone());
                }
                (_, Ok(())) => {
                    registered.remove(&change.target().1.id);
                }
                (_, Err(error)) => {
                    tracing::warn!(%error, "the syncer tries again");
                    is_done = false;
                }
            }
        }
        let due = match (is_done, renewal) {
            (false, _) => tokio::time::Instant::now() + RETRY,
            (true, Some(renewal)) => renewed + renewal,
            (true, None) => tokio::time::Instant::now() + Duration::from_secs(60),
        };
        tokio::select! {
            changed = feed.changed() => if changed.is_err() {
                return;
            },
            () = tokio::time::sleep_until(due) => {}
        }
        if renewal.is_some_and(|renewal| renewed.elapsed() >= renewal) {
            renewed = tokio::time::Instant::now();
            let all: Vec<_> =
                registered.values().map(|instance| (service.clone(), instance.clone())).collect();
            registry.renew(&all).await;
        }
    }
}

/// Returns the changes after which exactly the pods that are ready, and that are not being deleted, are registered.
fn changes(service: &ServiceKey, registered: &Registered, pods: &[Arc<Pod>]) -> Vec<Change> {
    let wanted: Registered = pods
        .iter()
        .filter(|pod| pods::is_ready(pod) && pod.metadata.deletion_timestamp.is_none())
        .filter_map(|pod| Some((pod.uid()?, instance(pod)?)))
        .collect();
    let gone = registered.iter().filter(|(uid, _)| !wanted.contains_key(*uid));
    let gone = gone.map(|(_, instance)| Change::Deregister(service.clone(), instance.clone()));
    let new = wanted.iter().filter(|(uid, _)| !registered.contains_key(*uid));
    gone.chain(new.map(|(_, instance)| Change::Register(service.clone(), instance.clone()))).collect()
}

/// Returns the instance of a pod, with a mark, as syncers have one. `None` if the pod has no address. Its id is the UID.
fn instance(pod: &Pod) -> Option<Instance> {
    let owner = Owner {
        cluster: SYNCER.to_owned(),
        namespace: pod.namespace().unwrap_or_default(),
        binding: SYNCER.to_owned(),
        pod: pod.name_any(),
        uid: pod.uid()?,
    };
    let mut metadata = BTreeMap::new();
    owner.mark(&mut metadata);
    Some(Instance {
        id: owner.uid,
        host: pod.status.as_ref()?.pod_ip.clone()?,
        port: PORT,
        cluster: String::new(),
        weight: 1.0,
        metadata,
        in_service: true,
        may_return: false,
        version: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, ready: &str, deleted: Option<&str>) -> Arc<Pod> {
        let pod = json!({
            "metadata": {"name": uid, "uid": uid, "deletionTimestamp": deleted},
            "status": {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": ready}]},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn only_ready_pods_that_stay_are_registered() {
        let service = ServiceKey { name: "web".to_owned(), ..ServiceKey::default() };
        let ids = |registered: &Registered, pods: &[Arc<Pod>]| -> Vec<(bool, String)> {
            let changes = changes(&service, registered, pods);
            let id = |change: &Change| (matches!(change, Change::Register(..)), change.target().1.id.clone());
            changes.iter().map(id).collect()
        };
        let pods =
            [pod("a", "True", None), pod("b", "False", None), pod("c", "True", Some("2026-01-01T00:00:00Z"))];
        assert_eq!(ids(&Registered::new(), &pods), [(true, "a".to_owned())]);
        let of = |uid: &str| (uid.to_owned(), instance(&pod(uid, "True", None)).unwrap());
        let registered: Registered = ["a", "b", "c", "d"].map(of).into();
        let gone = ["b", "c", "d"].map(|uid| (false, uid.to_owned()));
        assert_eq!(ids(&registered, &pods), gone);
        assert_eq!(ids(&[of("a")].into(), &pods[..2]), []);
    }
}
