//! What the watches have seen: pods, bindings and cluster registries.

mod changes;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use podward_api::{ClusterRegistry, DiscoveryBinding};
use tokio::sync::watch;

use crate::model::{Binding, BindingKey, BoundPod, Demand, KruiseWorkload, Lifecycle};

pub(crate) use changes::PodChanges;

/// The index that all tasks of the process share.
#[derive(Debug)]
pub(crate) struct Index {
    start: Instant,
    /// A node that has been silent for longer is lost.
    node_limit: Duration,
    state: Mutex<State>,
    /// Changes of bindings and cluster registries.
    bindings: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    namespaces: HashMap<String, Namespace>,
    bindings: BTreeMap<BindingKey, BindingEntry>,
    registries: HashMap<String, Arc<ClusterRegistry>>,
    lifecycles: HashMap<KruiseWorkload, Arc<Lifecycle>>,
}

#[derive(Debug, Default)]
struct Namespace {
    pods: HashMap<String, Arc<BoundPod>>,
    /// One for each task.
    changes: Vec<Weak<PodChanges>>,
}

impl Namespace {
    /// Wakes the tasks, and notes which pods have changed: none if something that they depend on has.
    fn changed(&mut self, uids: &[String]) {
        self.changes.retain(|changes| match changes.upgrade() {
            Some(changes) => {
                changes.add(uids.iter().cloned());
                true
            }
            None => false,
        });
    }
}

/// A binding as the watch returned it last.
#[derive(Clone, Debug)]
pub(crate) struct BindingEntry {
    /// The last valid form. `None` if it was never valid.
    pub(crate) valid: Option<Arc<Binding>>,
    /// Why its present form is invalid.
    pub(crate) problem: Option<String>,
    /// The object.
    pub(crate) object: Arc<DiscoveryBinding>,
}

impl Index {
    pub(crate) fn new(node_limit: Duration) -> Self {
        Self { start: Instant::now(), node_limit, state: Mutex::default(), bindings: watch::Sender::new(()) }
    }

    /// Returns the time since the start of the process.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Adds or replaces a pod.
    pub(crate) fn put_pod(&self, pod: BoundPod) {
        let pod = pod.judged(Timestamp::now(), self.node_limit);
        let mut state = self.state.lock();
        let namespace = state.namespaces.entry(pod.namespace.clone()).or_default();
        if namespace.pods.get(&pod.uid).is_some_and(|known| **known == pod) {
            return;
        }
        let uid = pod.uid.clone();
        namespace.pods.insert(uid.clone(), Arc::new(pod));
        namespace.changed(&[uid]);
    }

    /// Finds the pods whose node is lost by now: nothing changes in them at that moment.
    pub(crate) fn find_lost(&self) {
        let now = Timestamp::now();
        for namespace in self.state.lock().namespaces.values_mut() {
            let mut lost = Vec::new();
            for (uid, pod) in &mut namespace.pods {
                if pod.demand != Demand::Lost && pod.is_lost(now, self.node_limit) {
                    *pod = Arc::new(BoundPod { demand: Demand::Lost, ..(**pod).clone() });
                    lost.push(uid.clone());
                }
            }
            if !lost.is_empty() {
                namespace.changed(&lost);
            }
        }
    }

    /// Removes a pod that was deleted.
    pub(crate) fn remove_pod(&self, namespace: &str, uid: &str) {
        if let Some(namespace) = self.state.lock().namespaces.get_mut(namespace) {
            namespace.pods.remove(uid);
            namespace.changed(&[uid.to_owned()]);
        }
    }

    /// Removes all pods that are not in a complete list of UIDs.
    pub(crate) fn retain_pods(&self, listed: &HashSet<String>) {
        let mut state = self.state.lock();
        for namespace in state.namespaces.values_mut() {
            let gone: Vec<String> =
                namespace.pods.keys().filter(|uid| !listed.contains(*uid)).cloned().collect();
            namespace.pods.retain(|uid, _| listed.contains(uid));
            namespace.changed(&gone);
        }
    }

    /// Returns the UIDs of the pods of a namespace.
    pub(crate) fn pod_uids(&self, namespace: &str) -> Vec<String> {
        let state = self.state.lock();
        state.namespaces.get(namespace).into_iter().flat_map(|it| it.pods.keys().cloned()).collect()
    }

    /// Returns a pod. `None` if it does not exist.
    pub(crate) fn pod(&self, namespace: &str, uid: &str) -> Option<Arc<BoundPod>> {
        self.state.lock().namespaces.get(namespace)?.pods.get(uid).cloned()
    }

    /// Returns the pods of all namespaces that have one of some addresses, by address.
    pub(crate) fn pods_at(&self, ips: &HashSet<String>) -> HashMap<String, Vec<Arc<BoundPod>>> {
        let state = self.state.lock();
        let mut found: HashMap<String, Vec<Arc<BoundPod>>> = HashMap::new();
        let pods = state.namespaces.values().flat_map(|namespace| namespace.pods.values());
        for pod in pods.filter(|pod| ips.contains(&pod.ip)) {
            found.entry(pod.ip.clone()).or_default().push(Arc::clone(pod));
        }
        found
    }

    /// Returns where the changes of the pods of a namespace are noted from now on. At first all pods have changed.
    pub(crate) fn subscribe_to_pods(&self, namespace: &str) -> Arc<PodChanges> {
        let changes = Arc::new(PodChanges::default());
        let mut state = self.state.lock();
        let namespace = state.namespaces.entry(namespace.to_owned()).or_default();
        changes.add(namespace.pods.keys().cloned());
        namespace.changes.push(Arc::downgrade(&changes));
        changes
    }

    /// Adds or replaces a binding. An invalid one keeps its last valid form, because a mistake must not change the registry,
    /// and is deleted nevertheless.
    pub(crate) fn put_binding(&self, key: BindingKey, object: DiscoveryBinding) {
        {
            let mut state = self.state.lock();
            let before = state.bindings.remove(&key).and_then(|entry| entry.valid);
            let (valid, problem) = match Binding::new(object.clone()) {
                Ok(binding) => (Some(Arc::new(binding)), None),
                Err(error) => {
                    let valid = before.map(|mut before| {
                        Arc::make_mut(&mut before).deleting = object.metadata.deletion_timestamp.is_some();
                        before
                    });
                    (valid, Some(error.to_string()))
                }
            };
            state.bindings.insert(key, BindingEntry { valid, problem, object: Arc::new(object) });
        }
        self.bindings.send_replace(());
    }

    /// Removes a binding.
    pub(crate) fn remove_binding(&self, key: &BindingKey) {
        self.state.lock().bindings.remove(key);
        self.bindings.send_replace(());
    }

    /// Removes all bindings that are not in a complete list.
    pub(crate) fn retain_bindings(&self, listed: &HashSet<BindingKey>) {
        self.state.lock().bindings.retain(|key, _| listed.contains(key));
        self.bindings.send_replace(());
    }

    /// Returns the keys of all bindings.
    pub(crate) fn binding_keys(&self) -> Vec<BindingKey> {
        self.state.lock().bindings.keys().cloned().collect()
    }

    /// Returns the bindings that select a pod.
    pub(crate) fn bindings_of(&self, pod: &BoundPod) -> Vec<Arc<Binding>> {
        let state = self.state.lock();
        let valid = state.bindings.values().filter_map(|entry| entry.valid.as_ref());
        valid.filter(|binding| binding.selects(pod)).cloned().collect()
    }

    /// Returns a binding.
    pub(crate) fn binding(&self, key: &BindingKey) -> Option<BindingEntry> {
        self.state.lock().bindings.get(key).cloned()
    }

    /// Adds or replaces a cluster registry.
    pub(crate) fn put_registry(&self, name: String, object: ClusterRegistry) {
        self.state.lock().registries.insert(name, Arc::new(object));
        self.bindings.send_replace(());
    }

    /// Removes a cluster registry.
    pub(crate) fn remove_registry(&self, name: &str) {
        self.state.lock().registries.remove(name);
        self.bindings.send_replace(());
    }

    /// Removes all cluster registries that are not in a complete list.
    pub(crate) fn retain_registries(&self, listed: &HashSet<String>) {
        let mut state = self.state.lock();
        state.registries.retain(|name, _| listed.contains(name));
        drop(state);
        self.bindings.send_replace(());
    }

    /// Returns a cluster registry. `None` if it does not exist.
    pub(crate) fn registry(&self, name: &str) -> Option<Arc<ClusterRegistry>> {
        self.state.lock().registries.get(name).cloned()
    }

    /// Adds or replaces the hooks of a workload of OpenKruise.
    pub(crate) fn put_lifecycle(&self, workload: KruiseWorkload, lifecycle: Lifecycle) {
        let mut state = self.state.lock();
        if state.lifecycles.get(&workload).is_some_and(|known| **known == lifecycle) {
            return;
        }
        state.namespaces.entry(workload.namespace.clone()).or_default().changed(&[]);
        state.lifecycles.insert(workload, Arc::new(lifecycle));
    }

    /// Removes a workload of OpenKruise that was deleted.
    pub(crate) fn remove_lifecycle(&self, workload: &KruiseWorkload) {
        self.state.lock().lifecycles.remove(workload);
    }

    /// Removes all workloads of a kind that are not in a complete list.
    pub(crate) fn retain_lifecycles(&self, kind: &str, listed: &HashSet<KruiseWorkload>) {
        let lifecycles = &mut self.state.lock().lifecycles;
        lifecycles.retain(|workload, _| workload.kind != kind || listed.contains(workload));
    }

    /// Returns the hooks of a workload of OpenKruise. `None` if it is not known.
    pub(crate) fn lifecycle(&self, workload: &KruiseWorkload) -> Option<Arc<Lifecycle>> {
        self.state.lock().lifecycles.get(workload).cloned()
    }

    /// Returns a receiver that is notified when a binding or a cluster registry changes.
    pub(crate) fn subscribe_to_bindings(&self) -> watch::Receiver<()> {
        self.bindings.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::pod;

    #[tokio::test]
    async fn a_changed_lifecycle_wakes_the_tasks_and_a_look_for_lost_nodes_does_not() {
        let index = Index::new(Duration::from_secs(60));
        let workload = KruiseWorkload {
            namespace: "shop".to_owned(),
            kind: "CloneSet".to_owned(),
            name: "web".to_owned(),
        };
        let changes = index.subscribe_to_pods("shop");
        let is_woken = async || {
            let woken = std::pin::pin!(changes.changed());
            futures::poll!(woken).is_ready()
        };
        is_woken().await;
        index.find_lost();
        assert!(!is_woken().await);
        index.put_lifecycle(workload, Lifecycle::default());
        assert!(is_woken().await);
    }

    #[test]
    fn each_task_takes_the_changes_since_its_last_look() {
        let index = Index::new(Duration::from_secs(60));
        index.put_pod(pod("a"));
        let namespace = pod("a").namespace;
        let (first, second) = (index.subscribe_to_pods(&namespace), index.subscribe_to_pods(&namespace));
        let uids = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<HashSet<_>>();
        assert_eq!(first.take(), uids(&["a"]));
        index.put_pod(pod("b"));
        // The same pod again is no change.
        index.put_pod(pod("a"));
        assert_eq!(first.take(), uids(&["b"]));
        index.remove_pod(&namespace, "b");
        index.retain_pods(&HashSet::new());
        assert_eq!(first.take(), uids(&["a", "b"]));
        assert_eq!(second.take(), uids(&["a", "b"]));
        assert!(first.take().is_empty());
        assert!(index.pod(&namespace, "a").is_none());
    }
}
