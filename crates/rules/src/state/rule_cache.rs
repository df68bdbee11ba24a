//! The PodTransitionRules of the cluster, and the pods of the namespaces that have some.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use kube::runtime::reflector::Store;
use podward_core::rules::{CheckRequest, OtherChecks, RuleIndex, check_requests};
use podward_kube_util::{CachedPod, PodKey};

use super::changed_sets::ChangedSets;
use super::namespace_rules::NamespaceRules;
use super::observed_pod::{ObservedPod, ends_workload};
use super::rule_record::RuleRecord;

/// The PodTransitionRules of the cluster, and the pods of the namespaces that have some.
#[derive(Default)]
pub(crate) struct RuleCache {
    pub(crate) namespaces: HashMap<String, NamespaceRules>,
    pub(crate) index: RuleIndex,
    /// True once the pods were listed: a pod that is not in the store then does not exist.
    are_pods_listed: bool,
}

impl RuleCache {
    /// Stores a PodTransitionRule, if it is newer than the stored one. `is_watched` is true if the watch delivered it;
    /// only then is a rule added that is not stored, or one replaced by another of the same name. Returns true if the
    /// namespace is new.
    pub(crate) fn put(&mut self, record: RuleRecord, pods: &Store<CachedPod>, is_watched: bool) -> bool {
        let (namespace, name) = (record.set.namespace.clone(), record.set.name.clone());
        let is_new = !self.namespaces.contains_key(&namespace);
        let before = self.namespaces.get(&namespace).and_then(|rules| rules.records.get(&name));
        let same = before.filter(|before| before.uid == record.uid);
        let has_same_rules = same.is_some_and(|before| before.set == record.set);
        let is_old = same.is_some_and(|before| before.version_number() >= record.version_number());
        if is_old || (same.is_none() && !is_watched) {
            return false;
        }
        let set = record.set.clone();
        let is_changed = same.is_none_or(|before| before.generation != record.generation);
        let rules = self.namespaces.entry(namespace.clone()).or_default();
        if is_changed {
            rules.forget_answers(&name);
        }
        rules.mark_changed([&name]);
        rules.records.insert(name.clone(), record);
        if !has_same_rules {
            rules.mark_all_changed();
            self.index.put(set.clone());
            match is_new {
                true => self.load_pods(&[&namespace], pods),
                false => rules.reselect(&name, Some(&set)),
            }
        }
        is_new
    }

    /// Removes a PodTransitionRule.
    pub(crate) fn remove(&mut self, namespace: &str, name: &str) {
        self.index.remove(namespace, name);
        let Some(rules) = self.namespaces.get_mut(namespace) else { return };
        rules.records.remove(name);
        rules.forget_answers(name);
        rules.unstored.remove(name);
        rules.errors.remove(name);
        rules.mark_all_changed();
        rules.reselect(name, None);
    }

    /// Removes the PodTransitionRules that are not in `listed`, a complete list of namespaces and names. Returns the
    /// removed ones.
    pub(crate) fn retain(&mut self, listed: &[(String, String)]) -> Vec<(String, String)> {
        let listed: HashSet<&(String, String)> = listed.iter().collect();
        let missing = |(namespace, rules): (&String, &NamespaceRules)| {
            let known = rules.records.keys().map(|name| (namespace.clone(), name.clone()));
            known.filter(|known| !listed.contains(known)).collect::<Vec<_>>()
        };
        let gone: Vec<(String, String)> = self.namespaces.iter().flat_map(missing).collect();
        gone.iter().for_each(|(namespace, name)| self.remove(namespace, name));
        gone
    }

    /// Drops the state of `namespace` if it has no PodTransitionRule and all results are published. Returns true if it
    /// did.
    pub(crate) fn drop_if_empty(&mut self, namespace: &str) -> bool {
        let is_empty =
            |rules: &NamespaceRules| rules.records.is_empty() && rules.changed_sets == ChangedSets::default();
        let is_empty = self.namespaces.get(namespace).is_some_and(is_empty);
        if is_empty {
            self.namespaces.remove(namespace);
        }
        is_empty
    }

    /// Marks all rule sets of `namespace`: their decisions may have changed.
    pub(crate) fn mark_namespace_changed(&mut self, namespace: &str) {
        if let Some(rules) = self.namespaces.get_mut(namespace) {
            rules.mark_all_changed();
        }
    }

    fn observed(&self, pod: &Arc<CachedPod>) -> ObservedPod {
        let selecting = self.index.selecting(pod.namespace(), pod.labels());
        ObservedPod {
            requests: check_requests(pod.labels()),
            skipped: Arc::new(pod.skipped_rules()),
            sets: selecting.into_iter().map(|set| set.name.clone()).collect(),
            ends_workload: ends_workload(pod),
            pod: pod.clone(),
        }
    }

    /// Replaces the pods of these namespaces with those of the store.
    fn load_pods(&mut self, namespaces: &[&str], pods: &Store<CachedPod>) {
        let mut found: HashMap<&str, HashMap<String, ObservedPod>> =
            namespaces.iter().map(|namespace| (*namespace, HashMap::new())).collect();
        for pod in pods.state_filter(|pod| found.contains_key(pod.namespace())) {
            if let Some(found) = found.get_mut(pod.namespace()) {
                found.insert(pod.uid().to_owned(), self.observed(&pod));
            }
        }
        for (namespace, found) in found {
            if let Some(rules) = self.namespaces.get_mut(namespace) {
                rules.pods = found;
            }
        }
    }

    /// Stores a version of a pod, if it is not older than the stored one. `is_watched` is true if the watch delivered
    /// it; only then is a pod added that is not stored.
    pub(crate) fn observe_pod(&mut self, pod: &Arc<CachedPod>, is_watched: bool) {
        if !self.namespaces.contains_key(pod.namespace()) {
            return;
        }
        let after = self.observed(pod);
        let Some(rules) = self.namespaces.get_mut(pod.namespace()) else { return };
        let before = rules.pods.get(pod.uid());
        let is_news = match before {
            Some(before) if before.pod.is_newer_than(pod) => return,
            Some(before) => before.differs(&after),
            None if !is_watched => return,
            None => !after.sets.is_empty(),
        };
        let is_requested = |request: &CheckRequest| after.requests.binary_search(request).is_ok();
        if let Some(others) = rules.others.get_mut(pod.uid()) {
            others.retain(|request, _| is_requested(request));
        }
        if let Some(reports) = rules.reports.get_mut(pod.uid()) {
            reports.retain(|request, _| is_requested(request));
        }
        if is_news {
            rules.mark_changed(&after.sets);
        }
        let before = rules.pods.insert(pod.uid().to_owned(), after);
        if let Some(before) = before.filter(|_| is_news) {
            rules.mark_changed(&before.sets);
        }
    }

    /// Removes a pod that is gone or has opted out.
    pub(crate) fn pod_deleted(&mut self, pod: &CachedPod) {
        if let Some(rules) = self.namespaces.get_mut(pod.namespace()) {
            rules.remove_pod(pod.uid());
        }
    }

    /// Returns the rule sets of `namespace` to decide about now, and removes their marks. Returns `None` before the
    /// pods were listed: a decision without them would end tasks of webhooks for which pods still wait.
    pub(crate) fn take_changed(&mut self, namespace: &str) -> Option<BTreeSet<String>> {
        let rules = self.namespaces.get_mut(namespace).filter(|_| self.are_pods_listed)?;
        Some(rules.take_changed())
    }

    /// Replaces all pods, after the watch has listed them again.
    pub(crate) fn relist_pods(&mut self, pods: &Store<CachedPod>) {
        self.are_pods_listed = true;
        let take = |(namespace, rules): (&String, &mut NamespaceRules)| {
            (namespace.clone(), std::mem::take(&mut rules.pods))
        };
        let before: HashMap<String, HashMap<String, ObservedPod>> =
            self.namespaces.iter_mut().map(take).collect();
        self.load_pods(&before.keys().map(String::as_str).collect::<Vec<_>>(), pods);
        for (namespace, before) in before {
            let Some(rules) = self.namespaces.get_mut(&namespace) else { continue };
            for (uid, before) in before {
                match rules.pods.get_mut(&uid) {
                    // This controller has written the pod since.
                    Some(listed) if before.pod.is_newer_than(&listed.pod) => *listed = before,
                    Some(_) => {}
                    None => {
                        rules.gone_owners.add(&before);
                        rules.remove_pod(&uid);
                    }
                }
            }
            rules.mark_all_changed();
        }
    }

    /// Stores the results of a pod's checks other than rules. Does nothing if the pod is gone: a reconciliation may end
    /// after that.
    pub(crate) fn set_other_checks(
        &mut self,
        pod: &PodKey,
        uid: &str,
        results: HashMap<CheckRequest, OtherChecks>,
    ) {
        let Some(rules) = self.namespaces.get_mut(&pod.namespace) else { return };
        let Some(observed) = rules.pods.get(uid) else { return };
        if results.is_empty() {
            rules.others.remove(uid);
        } else if rules.others.get(uid) != Some(&results) {
            let sets = observed.sets.clone();
            rules.others.insert(uid.to_owned(), results);
            rules.mark_changed(&sets);
        }
    }
}
