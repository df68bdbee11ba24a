//! Reading the pods after a ledger that another controller wrote.
//!
//! He may have dropped grants because he saw their pods gone out of service, while the watch here still shows those pods as they were
//! before. So the pods are listed, metadata alone, by a request that begins when the ledger is known, and nothing is decided before
//! everything that the list shows has come by the watch too.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};

use super::Shared;
use super::fresh::DEADLINE;

/// Lists that are made at most, each followed by a wait for the watch. A pod that is gone by the time that the watch comes to it is not on
/// the next one.
const LISTS: usize = 5;
const WAIT: Duration = Duration::from_secs(2);

/// Returns once everything is known of the pods of `namespace` that was so when this was called.
pub(super) async fn read_pods(shared: &Shared, namespace: &str) -> Result<(), String> {
    let api: Api<Pod> = Api::namespaced(shared.client.clone(), namespace);
    let params = ListParams::default().labels(&format!("{CONTROL_LABEL}={CONTROL_VALUE}"));
    for _ in 0..LISTS {
        let mut seen = shared.pods_seen.subscribe();
        let listed = match tokio::time::timeout(DEADLINE, api.list_metadata(&params)).await {
            Ok(Ok(listed)) => listed,
            Ok(Err(error)) => return Err(format!("could not list the pods: {error}")),
            Err(_) => return Err(format!("could not list the pods: no answer within {DEADLINE:?}")),
        };
        let as_of = number(listed.metadata.resource_version.as_deref());
        let listed: HashMap<String, u64> = listed
            .items
            .iter()
            .map(|pod| (pod.uid().unwrap_or_default(), number(pod.resource_version().as_deref())))
            .collect();
        let waited = tokio::time::timeout(WAIT, async {
            while shared.is_behind(namespace, &listed, as_of) {
                if seen.changed().await.is_err() {
                    return;
                }
            }
        });
        if waited.await.is_ok() {
            return Ok(());
        }
    }
    Err("the watch of pods is behind".to_owned())
}

fn number(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}

impl Shared {
    /// Whether something of `listed` (UID and resource version of each pod, as of the list's own version) is not known yet.
    fn is_behind(&self, namespace: &str, listed: &HashMap<String, u64>, as_of: u64) -> bool {
        let state = self.state.lock();
        let Some(space) = state.spaces.get(namespace) else { return false };
        let known = |uid: &str| space.pods.get(uid).map(|known| number(Some(known.pod.resource_version())));
        let lacks =
            listed.iter().any(|(uid, version)| known(uid.as_str()).is_none_or(|known| known < *version));
        let outlived = |uid: &String| {
            !listed.contains_key(uid) && known(uid.as_str()).is_some_and(|known| known <= as_of)
        };
        lacks || space.pods.keys().any(outlived)
    }
}
