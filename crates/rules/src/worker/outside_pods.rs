//! The pods of owners that are not opted in. They are not watched, so they are listed when a decision depends on them.

use std::collections::{HashMap, HashSet};
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

/// An owner whose pods that are not opted in are to be listed.
pub(crate) struct OwnerToList {
    pub(crate) owner: OwnerReference,
    /// The owner's label selector, as the text of a list parameter. `None` if it has none.
    pub(crate) selector: Option<String>,
    /// The UIDs of its pods that are opted in. They are not counted, also if one has just opted out.
    pub(crate) known: HashSet<String>,
    /// The largest number of pods that matters.
    pub(crate) most: u32,
}

impl OutsidePods {
    /// Returns a value that has listed nothing yet.
    pub(crate) fn new(client: Client) -> Self {
        OutsidePods { client, without: Mutex::default() }
    }

    /// Returns the time of the next list of the pods of the owner with this UID, if the last one has found none; `None`
    /// if they can be listed now. Such a list is not repeated for [`OWNER_RECHECK_DELAY`]. A number other than 0 is not
    /// kept, because a pod may have become unavailable since.
    pub(crate) fn none_until(&self, owner: &str) -> Option<Instant> {
        let without = self.without.lock();
        without.get(owner).map(|(_, next)| *next).filter(|next| *next > Instant::now())
    }

    /// Lists the pods of an owner in `namespace`. Returns how many of them are not opted in, Ready, not being deleted,
    /// and not among [`OwnerToList::known`]; at most [`OwnerToList::most`].
    ///
    /// # Errors
    /// When the pods can't be listed.
    pub(crate) async fn ready(&self, namespace: &str, list: &OwnerToList) -> Result<u32, String> {
        let OwnerToList { owner, selector, known, most } = list;
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
        let labels = selector.as_ref().filter(|selector| !selector.is_empty());
        let labels = labels.map_or_else(|| opted_out.clone(), |selector| format!("{selector},{opted_out}"));
        let mut params = ListParams::default().labels(&labels).fields("status.phase=Running").limit(PAGE);
        let mut pods = 0;
        while pods < *most {
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
        Ok(pods.min(*most))
    }

    /// Drops the state of the owners of `namespace` for whose UID `counts` returns false.
    pub(super) fn retain(&self, namespace: &str, counts: impl Fn(&str) -> bool) {
        self.without.lock().retain(|uid, (of, _)| of != namespace || counts(uid));
    }
}
