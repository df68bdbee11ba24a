//! Reading the pods after a ledger that another controller wrote.
//!
//! He may have dropped grants because he saw their pods gone out of service, while the watch here still shows those pods as they were
//! before. So the pods are listed, metadata alone, by a request that begins when the ledger is known, and nothing is decided before
//! everything that the list shows has come by the watch too.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};

use super::Shared;
use super::fresh::DEADLINE;
use super::state::Space;

/// Pods that are listed at a time. Managed fields as they are decoded are many times as large as their JSON: of thousands of pods that
/// would be more than all else here.
const PAGE: u32 = 500;
/// Lists that are made at most, each followed by a wait for the watch. A pod that is gone by the time that the watch comes to it is not on
/// the next one.
const LISTS: usize = 5;
const WAIT: Duration = Duration::from_secs(2);

/// Returns once everything is known of the pods of `namespace` that was so when this was called.
pub(super) async fn read_pods(shared: &Shared, namespace: &str) -> Result<(), String> {
    let api: Api<Pod> = Api::namespaced(shared.client.clone(), namespace);
    for _ in 0..LISTS {
        let mut seen = shared.pods_seen.subscribe();
        let listed = list(&api).await.map_err(|error| format!("could not list the pods: {error}"))?;
        let waited = tokio::time::timeout(WAIT, async {
            loop {
                // What has come has come: each is waited for once, however many events there are meanwhile.
                let mut behind = shared.behind(namespace, &listed);
                if behind.is_empty() {
                    return;
                }
                while shared.are_behind(namespace, &listed, &mut behind) {
                    if seen.changed().await.is_err() {
                        return;
                    }
                }
            }
        });
        if waited.await.is_ok() {
            return Ok(());
        }
    }
    Err("the watch of pods is behind".to_owned())
}

/// Lists the pods in pages, all of them as of the moment of the first.
async fn list(api: &Api<Pod>) -> Result<Listed, String> {
    let mut listed = Listed { pods: HashMap::new(), as_of: 0 };
    let mut params = ListParams::default().labels(&format!("{CONTROL_LABEL}={CONTROL_VALUE}")).limit(PAGE);
    loop {
        let page = match tokio::time::timeout(DEADLINE, api.list_metadata(&params)).await {
            Ok(page) => page.map_err(|error| error.to_string())?,
            Err(_) => return Err(format!("no answer within {DEADLINE:?}")),
        };
        listed.as_of = number(page.metadata.resource_version.as_deref());
        let version = |pod: &PartialObjectMeta<Pod>| {
            (pod.uid().unwrap_or_default(), number(pod.resource_version().as_deref()))
        };
        listed.pods.extend(page.items.iter().map(version));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(listed),
        }
    }
}

fn number(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// What a list of pods has shown.
struct Listed {
    /// Resource versions, by UID.
    pods: HashMap<String, u64>,
    /// The list's own.
    as_of: u64,
}

impl Listed {
    /// Whether the pod is known as it was listed, or later.
    fn is_known(&self, space: &Space, uid: &str) -> bool {
        let known = space.pods.get(uid).map(|known| number(Some(known.pod.resource_version())));
        match self.pods.get(uid) {
            Some(listed) => known.is_some_and(|known| known >= *listed),
            None => known.is_none_or(|known| known > self.as_of),
        }
    }
}

impl Shared {
    /// UIDs of pods of which something that was listed is not known yet.
    fn behind(&self, namespace: &str, listed: &Listed) -> Vec<String> {
        let state = self.state.lock();
        let Some(space) = state.spaces.get(namespace) else { return Vec::new() };
        let uids = listed.pods.keys().chain(space.pods.keys());
        uids.filter(|uid| !listed.is_known(space, uid)).cloned().collect()
    }

    /// Whether any of `behind` still is; those at its end that aren't are taken out.
    fn are_behind(&self, namespace: &str, listed: &Listed, behind: &mut Vec<String>) -> bool {
        let state = self.state.lock();
        let Some(space) = state.spaces.get(namespace) else { return false };
        while behind.pop_if(|uid| listed.is_known(space, uid)).is_some() {}
        !behind.is_empty()
    }
}
