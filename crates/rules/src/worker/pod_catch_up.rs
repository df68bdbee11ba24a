//! Reads the pods after the grants that another controller wrote.
//!
//! The other controller may have dropped grants because it saw their pods become unavailable, while this controller's
//! watch still shows the pods as they were before. So the pods are listed, metadata only, with a request that begins
//! after the grants were read. A decision waits until the watch has delivered everything that was listed.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use podward_runtime::retry::api_call;

use super::super::context::RuleContext;
use super::super::state::NamespaceRules;

/// Pods in a page. Decoded managed fields are many times larger than their JSON; those of thousands of pods would need
/// more memory than everything else here.
const PAGE: u32 = 500;
/// The largest number of lists, each followed by a wait for the watch. A pod that was deleted before the watch
/// delivered it is not in the next list.
const MAX_LISTS: usize = 5;
/// The wait for the watch after a list.
const WATCH_TIMEOUT: Duration = Duration::from_secs(2);

/// Waits until the cache contains the pods of `namespace` as they are now, or later versions.
///
/// # Errors
/// When the pods can't be listed, or the watch is behind.
pub(super) async fn read_pods(context: &RuleContext, namespace: &str) -> Result<(), String> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    for _ in 0..MAX_LISTS {
        let mut events = context.pod_events.subscribe();
        let listed = list(&api).await.map_err(|error| format!("could not list the pods: {error}"))?;
        let waited = tokio::time::timeout(WATCH_TIMEOUT, async {
            loop {
                // Each pod is waited for once, however many events arrive meanwhile.
                let mut behind = pods_behind(context, namespace, &listed);
                if behind.is_empty() {
                    return;
                }
                while are_behind(context, namespace, &listed, &mut behind) {
                    if events.changed().await.is_err() {
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

/// Lists the pods in pages, which all show the moment of the first.
async fn list(api: &Api<Pod>) -> Result<ListedPods, String> {
    let mut listed = ListedPods { versions: HashMap::new(), version: 0 };
    let mut params = ListParams::default().labels(&format!("{CONTROL_LABEL}={CONTROL_VALUE}")).limit(PAGE);
    loop {
        let page = api_call(api.list_metadata(&params)).await.map_err(|error| error.to_string())?;
        listed.version = number(page.metadata.resource_version.as_deref());
        let version = |pod: &PartialObjectMeta<Pod>| {
            (pod.uid().unwrap_or_default(), number(pod.resource_version().as_deref()))
        };
        listed.versions.extend(page.items.iter().map(version));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(listed),
        }
    }
}

fn number(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// A list of pods.
struct ListedPods {
    /// By UID: the resource versions of the pods.
    versions: HashMap<String, u64>,
    /// The resource version of the list.
    version: u64,
}

impl ListedPods {
    /// True if the cache contains the pod as it was listed, or a later version.
    fn is_cached(&self, rules: &NamespaceRules, uid: &str) -> bool {
        let cached = rules.pods.get(uid).map(|observed| number(Some(observed.pod.resource_version())));
        match self.versions.get(uid) {
            Some(listed) => cached.is_some_and(|cached| cached >= *listed),
            None => cached.is_none_or(|cached| cached > self.version),
        }
    }
}

/// Returns the UIDs of the pods of which the cache is behind the list.
fn pods_behind(context: &RuleContext, namespace: &str, listed: &ListedPods) -> Vec<String> {
    let cache = context.cache.lock();
    let Some(rules) = cache.namespaces.get(namespace) else { return Vec::new() };
    let uids = listed.versions.keys().chain(rules.pods.keys());
    uids.filter(|uid| !listed.is_cached(rules, uid)).cloned().collect()
}

/// Returns true if the cache is still behind the list in one of `behind`. Removes the pods at the end of `behind` of
/// which it is not.
fn are_behind(context: &RuleContext, namespace: &str, listed: &ListedPods, behind: &mut Vec<String>) -> bool {
    let cache = context.cache.lock();
    let Some(rules) = cache.namespaces.get(namespace) else { return false };
    while behind.pop_if(|uid| listed.is_cached(rules, uid)).is_some() {}
    !behind.is_empty()
}
