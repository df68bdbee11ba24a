//! Whether all rules are known that a pod's asking has to heed.
//!
//! The watch of rule objects may be behind. So before anything passes the namespace's rule objects are listed, metadata alone, by a request
//! that began after the pod was seen asking: what the list has must be known, in that generation or a later one. One request serves all
//! that ask while the one before it is on its way.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use podward_api::PodTransitionRule;
use podward_core::rules::Asking;

use super::Shared;
use crate::cached_pod::{CachedPod, PodKey};

/// No request may take longer; it is made again then.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);
/// How long the watch may take to bring what a list has shown, before another one is made.
const PATIENCE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Which askings may rely on what is known of rules.
#[derive(Default)]
pub(super) struct Fresh {
    spaces: Mutex<HashMap<String, Space>>,
    /// By pod UID.
    known: Mutex<HashMap<String, HashSet<Asking>>>,
}

#[derive(Default)]
struct Space {
    /// UID and askings.
    waiting: HashMap<PodKey, (String, Vec<Asking>)>,
    is_asking: bool,
    /// By pod UID: whom the list that is on its way is for.
    underway: HashMap<String, Vec<Asking>>,
    /// Why it isn't known yet.
    trouble: Option<String>,
}

impl Fresh {
    /// A pod is gone.
    pub(super) fn forget(&self, uid: &str) {
        self.known.lock().remove(uid);
    }
}

/// Whether all rules are known that `askings` of `pod` have to heed; else why not, and `pod` is looked at again when they are.
pub(super) fn are_known(shared: &Arc<Shared>, pod: &CachedPod, askings: &[Asking]) -> Result<(), String> {
    {
        let mut known = shared.fresh.known.lock();
        if askings.is_empty() {
            known.remove(pod.uid());
            return Ok(());
        }
        if let Some(known) = known.get_mut(pod.uid()) {
            known.retain(|asking| askings.contains(asking));
            if askings.iter().all(|asking| known.contains(asking)) {
                return Ok(());
            }
        }
    }
    let key = pod.key();
    let mut spaces = shared.fresh.spaces.lock();
    let space = spaces.entry(key.namespace.clone()).or_default();
    let asked = space.underway.get(pod.uid());
    if !asked.is_some_and(|asked| askings.iter().all(|asking| asked.contains(asking))) {
        space.waiting.insert(key.clone(), (pod.uid().to_owned(), askings.to_vec()));
    }
    if !space.is_asking {
        space.is_asking = true;
        shared.spawn(ask(shared.clone(), key.namespace));
    }
    Err(match &space.trouble {
        None => "the rules for it are being looked up".to_owned(),
        Some(trouble) => format!("the rules for it can't be looked up: {trouble}; it is tried again"),
    })
}

/// Lists until nobody of `namespace` waits.
async fn ask(shared: Arc<Shared>, namespace: String) {
    let mut pause = FIRST_PAUSE;
    loop {
        let batch = {
            let mut spaces = shared.fresh.spaces.lock();
            let Some(space) = spaces.get_mut(&namespace) else { return };
            if space.waiting.is_empty() {
                spaces.remove(&namespace);
                return;
            }
            let batch = std::mem::take(&mut space.waiting);
            space.underway = batch.values().cloned().collect();
            batch
        };
        match list(&shared, &namespace).await {
            Ok(present) => {
                pause = FIRST_PAUSE;
                until_known(&shared, &namespace, present).await;
                let mut pods = Vec::new();
                for (pod, (uid, askings)) in batch {
                    shared.fresh.known.lock().entry(uid).or_default().extend(askings);
                    pods.push(pod);
                }
                if let Some(space) = shared.fresh.spaces.lock().get_mut(&namespace) {
                    space.trouble = None;
                    space.underway.clear();
                }
                pods.into_iter().for_each(|pod| shared.awake.push(pod));
            }
            Err(error) => {
                tracing::warn!(namespace, %error, "could not look up PodTransitionRules; operations wait for it, and it is tried again");
                if let Some(space) = shared.fresh.spaces.lock().get_mut(&namespace) {
                    for (pod, asks) in batch {
                        // Those who have come since are newer, and are asked about all the same.
                        if let Entry::Vacant(place) = space.waiting.entry(pod) {
                            shared.awake.push(place.key().clone());
                            place.insert(asks);
                        }
                    }
                    space.underway.clear();
                    space.trouble = Some(error);
                }
                tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// A rule object's name, UID and generation.
type Present = (String, String, i64);

async fn list(shared: &Shared, namespace: &str) -> Result<Vec<Present>, String> {
    let api: Api<PodTransitionRule> = Api::namespaced(shared.client.clone(), namespace);
    let params = ListParams::default();
    let listed = match tokio::time::timeout(DEADLINE, api.list_metadata(&params)).await {
        Ok(Ok(listed)) => listed,
        // The API server knows no such resource: there are no rules.
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => return Ok(Vec::new()),
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("no answer from the API server within {DEADLINE:?}")),
    };
    let read = |object: &PartialObjectMeta<PodTransitionRule>| {
        (object.name_any(), object.uid().unwrap_or_default(), object.metadata.generation.unwrap_or_default())
    };
    Ok(listed.items.iter().map(read).collect())
}

/// Waits until everything that was listed is known. What has been known once is known, also when it is gone by now.
async fn until_known(shared: &Shared, namespace: &str, mut listed: Vec<Present>) {
    let mut seen = shared.rules_seen.subscribe();
    loop {
        seen.mark_unchanged();
        if !shared.are_missing(namespace, &mut listed) {
            return;
        }
        // What was removed, or made anew, since the list will never be known so: then a list that is newer tells, which serves as well.
        if tokio::time::timeout(PATIENCE, seen.changed()).await.is_err() {
            let missing = listed.last().map(|(name, ..)| name);
            tracing::warn!(
                namespace,
                ?missing,
                "the watch of PodTransitionRules is behind; operations wait for it"
            );
            if let Ok(newer) = list(shared, namespace).await {
                listed = newer;
            }
        }
    }
}

impl Shared {
    /// Whether any of `listed` isn't known so, or in a later generation; those at its end that are, are taken out.
    fn are_missing(&self, namespace: &str, listed: &mut Vec<Present>) -> bool {
        let state = self.state.lock();
        let records = state.spaces.get(namespace).map(|space| &space.records);
        let is_known = |(name, uid, generation): &mut Present| {
            let record = records.and_then(|records| records.get(name));
            record.is_some_and(|record| record.uid == *uid && record.generation >= *generation)
        };
        while listed.pop_if(is_known).is_some() {}
        !listed.is_empty()
    }
}
