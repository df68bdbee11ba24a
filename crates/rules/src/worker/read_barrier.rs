//! The read barrier: which check requests may rely on the cache of rules.
//!
//! The watch of PodTransitionRules may be behind. So before a check request passes, the PodTransitionRules of its
//! namespace are listed, metadata only, with a request that begins after the check request was seen. The check request
//! passes the barrier when the cache contains all that was listed, in the same or a later generation. One list serves
//! all check requests that arrive while the previous list is in flight. [`rule_lookup`](super::rule_lookup) makes the
//! lists.
//!
//! An operation passes once: the cache then contains the rules that existed when it began, also for the check of its
//! result. A list is served from the API server's watch cache, which waits until etcd has told it that it is up to date:
//! up to 100 ms.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use podward_core::Operations;
use podward_core::rules::{CheckRequest, CheckStage};
use podward_kube_util::{CachedPod, PodKey};

/// Pods with their UIDs and check requests.
pub(crate) type WaitingRequests = HashMap<PodKey, (String, Vec<CheckRequest>)>;

/// The check requests that may rely on the cache, and those that wait for a list.
#[derive(Default)]
pub(crate) struct ReadBarrier {
    namespaces: Mutex<HashMap<String, PendingLists>>,
    /// By pod UID.
    passed: Mutex<HashMap<String, PassedChecks>>,
}

/// What has passed the barrier on a pod.
#[derive(Default)]
struct PassedChecks {
    requests: HashSet<CheckRequest>,
    /// The ids of the operations that passed with their first check and go on.
    operations: HashSet<String>,
}

impl PassedChecks {
    fn add(&mut self, requests: Vec<CheckRequest>) {
        let first = requests.iter().filter(|request| request.stage == CheckStage::PreCheck);
        self.operations.extend(first.map(|request| request.operation.clone()));
        self.requests.extend(requests);
    }

    /// Forgets what `requests`, all check requests of a pod, and its operations do not contain any more. An id that is
    /// begun again is another operation.
    fn retain(&mut self, requests: &[CheckRequest], operations: &Operations<'_>) {
        let Self { requests: passed, operations: ids } = self;
        passed.retain(|request| requests.contains(request));
        let begins_again = |id: &String| {
            requests.iter().any(|request| {
                request.stage == CheckStage::PreCheck && request.operation == *id && !passed.contains(request)
            })
        };
        ids.retain(|id| operations.get(id).is_some_and(|operation| operation.is_live()) && !begins_again(id));
    }

    fn contains(&self, request: &CheckRequest) -> bool {
        self.requests.contains(request)
            || (request.stage == CheckStage::PostCheck && self.operations.contains(&request.operation))
    }

    fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.operations.is_empty()
    }
}

/// The lists of one namespace. It exists while a task makes them.
#[derive(Default)]
struct PendingLists {
    waiting: WaitingRequests,
    /// By pod UID: the check requests that the list in flight is for.
    in_flight: HashMap<String, Vec<CheckRequest>>,
    /// Why the last list failed; `None` if it did not.
    error: Option<String>,
}

/// The state of a pod's check requests at the barrier.
pub(crate) enum BarrierState {
    /// All have passed.
    Passed,
    /// Some wait, for this reason. The flag is true if a task has to be started that makes the lists of the namespace.
    Waiting(String, bool),
}

impl ReadBarrier {
    /// Drops the state of the pod with this UID, which is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.passed.lock().remove(uid);
        for lists in self.namespaces.lock().values_mut() {
            lists.waiting.retain(|_, (of, _)| of != uid);
            lists.in_flight.remove(uid);
        }
    }

    /// Returns the state of `requests`, all check requests of `pod`. Those that have not passed wait from now on.
    pub(super) fn enter(&self, pod: &CachedPod, requests: &[CheckRequest]) -> BarrierState {
        if let Entry::Occupied(mut passed) = self.passed.lock().entry(pod.uid().to_owned()) {
            passed.get_mut().retain(requests, &Operations::parse(pod.view().labels));
            if requests.iter().all(|request| passed.get().contains(request)) {
                if passed.get().is_empty() {
                    passed.remove();
                }
                return BarrierState::Passed;
            }
        } else if requests.is_empty() {
            return BarrierState::Passed;
        }
        let key = pod.key();
        let mut namespaces = self.namespaces.lock();
        let is_new = !namespaces.contains_key(&key.namespace);
        let lists = namespaces.entry(key.namespace.clone()).or_default();
        let in_flight = lists.in_flight.get(pod.uid());
        if !in_flight.is_some_and(|listed| requests.iter().all(|request| listed.contains(request))) {
            lists.waiting.insert(key, (pod.uid().to_owned(), requests.to_vec()));
        }
        let reason = match &lists.error {
            None => "the rules for it are being looked up".to_owned(),
            Some(error) => format!("the rules for it can't be looked up: {error}; it is tried again"),
        };
        BarrierState::Waiting(reason, is_new)
    }

    /// Returns the check requests of `namespace` that the next list is for. Returns `None`, and ends the lists, if none
    /// waits.
    pub(super) fn next_list(&self, namespace: &str) -> Option<WaitingRequests> {
        let mut namespaces = self.namespaces.lock();
        let lists = namespaces.get_mut(namespace)?;
        if lists.waiting.is_empty() {
            namespaces.remove(namespace);
            return None;
        }
        let batch = std::mem::take(&mut lists.waiting);
        lists.in_flight = batch.values().cloned().collect();
        Some(batch)
    }

    /// Lets the check requests of a list pass, but not those of pods that are gone meanwhile. Returns the pods.
    pub(super) fn list_succeeded(&self, namespace: &str, batch: WaitingRequests) -> Vec<PodKey> {
        let mut listed = HashMap::new();
        if let Some(lists) = self.namespaces.lock().get_mut(namespace) {
            lists.error = None;
            listed = std::mem::take(&mut lists.in_flight);
        }
        let mut pods = Vec::new();
        for (pod, (uid, requests)) in batch {
            if listed.contains_key(&uid) {
                self.passed.lock().entry(uid).or_default().add(requests);
            }
            pods.push(pod);
        }
        pods
    }

    /// Makes the check requests of a failed list wait for the next one. Returns their pods.
    pub(super) fn list_failed(&self, namespace: &str, batch: WaitingRequests, error: String) -> Vec<PodKey> {
        let mut pods = Vec::new();
        if let Some(lists) = self.namespaces.lock().get_mut(namespace) {
            for (pod, requests) in batch {
                // Requests that arrived since are newer, and stay. The pod may be gone meanwhile.
                if lists.in_flight.contains_key(&requests.0)
                    && let Entry::Vacant(place) = lists.waiting.entry(pod)
                {
                    pods.push(place.key().clone());
                    place.insert(requests);
                }
            }
            lists.in_flight.clear();
            lists.error = Some(error);
        }
        pods
    }
}
