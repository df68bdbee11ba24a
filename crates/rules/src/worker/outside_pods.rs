//! The pods of owners that are not opted in. They are not watched, so they are listed when a decision depends on them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use podward_kube_util::CachedPod;
use podward_runtime::retry::api_call;

use super::super::state::OWNER_RECHECK_DELAY;

/// Pods in a page. They are listed with their status, because a pod that is not Ready does not count.
const PAGE: u32 = 100;
/// The pods of owners that are not opted in.
pub(crate) struct OutsidePods {
    client: Client,
    /// The owners for which the last list has found none, by UID: the namespace, and the time of the next list.
    without: Mutex<HashMap<String, (String, Instant)>>,
}

/// The pods of an owner that are not opted in.
pub(crate) struct OutsideCount {
    pub(crate) pods: u32,
    /// True if they were listed. Otherwise there was none a while ago.
    pub(crate) is_listed: bool,
}

impl OutsidePods {
    /// Returns a value that has listed nothing yet.
    pub(crate) fn new(client: Client) -> Self {
        OutsidePods { client, without: Mutex::default() }
    }

    /// Returns how many pods of `owner` in `namespace` are not opted in, Ready, not being deleted, and not among `known`;
    /// at most `most`. A number from an earlier list is never returned, because a pod may have become unavailable since,
    /// but for the number 0: then they are listed again after a while. `selector` is the label selector of the owner.
    ///
    /// # Errors
    /// When the pods can't be listed.
    pub(crate) async fn ready(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        selector: Option<&str>,
        known: &[Arc<CachedPod>],
        most: u32,
    ) -> Result<OutsideCount, String> {
        if self.without.lock().get(&owner.uid).is_some_and(|(_, next)| *next > Instant::now()) {
            return Ok(OutsideCount { pods: 0, is_listed: false });
        }
        let known: HashSet<&str> = known.iter().map(|pod| pod.uid()).collect();
        let counts = |pod: &&CachedPod| {
            let view = pod.view();
            view.ready
                && !view.terminating
                && !pod.is_terminal()
                && !view.is_controlled()
                && pod.controller().is_some_and(|controller| controller.uid == owner.uid)
                && !known.contains(pod.uid())
        };
        let api: Api<CachedPod> = Api::namespaced(self.client.clone(), namespace);
        let opted_out = format!("{CONTROL_LABEL}!={CONTROL_VALUE}");
        let labels = selector.filter(|selector| !selector.is_empty());
        let labels = labels.map_or_else(|| opted_out.clone(), |selector| format!("{selector},{opted_out}"));
        let mut params = ListParams::default().labels(&labels).fields("status.phase=Running").limit(PAGE);
        let mut pods = 0;
        while pods < most {
            let page = api_call(api.list(&params)).await.map_err(|error| {
                format!(
                    "could not list the pods of {} {} that are not opted in: {error}",
                    owner.kind, owner.name
                )
            })?;
            pods += u32::try_from(page.items.iter().filter(counts).count()).unwrap_or(u32::MAX);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        let mut without = self.without.lock();
        match pods {
            0 => {
                let next = Instant::now() + OWNER_RECHECK_DELAY;
                without.insert(owner.uid.clone(), (namespace.to_owned(), next));
            }
            _ => drop(without.remove(&owner.uid)),
        }
        Ok(OutsideCount { pods: pods.min(most), is_listed: true })
    }

    /// Drops the state of the owners of `namespace` for whose UID `counts` returns false.
    pub(super) fn retain(&self, namespace: &str, counts: impl Fn(&str) -> bool) {
        self.without.lock().retain(|uid, (of, _)| of != namespace || counts(uid));
    }
}
