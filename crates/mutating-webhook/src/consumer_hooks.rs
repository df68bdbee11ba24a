//! The hooks of the cluster that will be consumers of a new pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, ResourceExt};
use parking_lot::RwLock;
use podward_api::LifecycleHook;
use podward_core::Pod;
use podward_core::hooks::Hook;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE, INJECT_LABEL, INJECT_NONE};
use podward_kube_util::watched::{Watch, WatchMetrics, Watched};
use podward_runtime::WebhookSetup;

/// The label that the API server sets on each namespace.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

type NamespaceLabels = BTreeMap<String, String>;

/// The hooks of the cluster and the labels of its namespaces, as far as they are known. Clones share them.
///
/// Missing or outdated information only costs time: the pod is created with the consumers that are known here, and the
/// lifecycle-controller adds the others.
#[derive(Clone, Debug, Default)]
pub struct ConsumerHooks {
    /// The hooks that are consumers, sorted by name.
    hooks: Arc<RwLock<Arc<[Arc<Hook>]>>>,
    namespaces: Option<Watched<NamespaceLabels>>,
}

impl ConsumerHooks {
    /// Watches the hooks and namespaces of the cluster of `client`. The process is ready when both lists are complete.
    /// A cluster without the CRD of LifecycleHooks has no hooks.
    #[must_use]
    pub fn follow(client: &Client, setup: &mut WebhookSetup) -> Self {
        let metrics = WatchMetrics::default();
        metrics.register(&mut setup.registry);
        let watch = |name, may_be_absent| Watch {
            name,
            listed: setup.readiness.condition(name),
            metrics: metrics.clone(),
            may_be_absent,
            stop: setup.stop.clone(),
        };
        let hooks: Arc<RwLock<Arc<[Arc<Hook>]>>> = Arc::default();
        let (all, shared) = (Api::<DeserializeGuard<LifecycleHook>>::all(client.clone()), Arc::clone(&hooks));
        // The sorted copy in `hooks` is used instead of the map. The watch continues without a handle.
        let _: Watched<Arc<Hook>> = Watched::keep(
            watch("lifecyclehooks", true),
            move || watcher(all.clone(), watcher::Config::default()),
            |hook| consumer(hook).map(Arc::new),
            move |hooks| *shared.write() = sorted_by_name(hooks.values().cloned()),
        );
        let all = Api::<PartialObjectMeta<Namespace>>::all(client.clone());
        let namespaces = Watched::keep(
            watch("namespaces", false),
            move || watcher(all.clone(), watcher::Config::default()),
            |namespace| namespace.metadata.labels,
            |_| {},
        );
        Self { hooks, namespaces: Some(namespaces) }
    }

    /// Returns a warning if `pod`, which is created in `namespace`, opts in where evictions are not sent to Podward.
    pub(crate) fn eviction_warning(&self, pod: &Pod, namespace: &str) -> Option<String> {
        let labels = self.namespaces.as_ref()?.get(namespace)?;
        let is = |labels: &BTreeMap<_, _>, key, value| labels.get(key).map(String::as_str) == Some(value);
        let opts_in =
            pod.metadata.labels.as_ref().is_some_and(|labels| is(labels, CONTROL_LABEL, CONTROL_VALUE));
        (opts_in && is(&labels, INJECT_LABEL, INJECT_NONE)).then(|| {
            format!(
                "evictions of this pod will not wait for its consumers, because namespace {namespace} has the label \
                 {INJECT_LABEL}: {INJECT_NONE}; remove that label, or {CONTROL_LABEL} from the pod"
            )
        })
    }

    /// Returns the hooks that will be consumers of `pod` when it is created in `namespace`. If `inject` is true, the
    /// pod is opted in.
    pub(crate) fn of(&self, pod: &Pod, namespace: &str, inject: bool) -> Vec<Arc<Hook>> {
        let hooks = Arc::clone(&self.hooks.read());
        if hooks.is_empty() {
            return Vec::new();
        }
        let mut labels = pod.metadata.labels.clone().unwrap_or_default();
        if inject {
            labels.entry(CONTROL_LABEL.to_owned()).or_insert_with(|| CONTROL_VALUE.to_owned());
        }
        let known = self.namespaces.as_ref().and_then(|namespaces| namespaces.get(namespace));
        // A namespace that was created just now has at least this label.
        let namespace_labels = known
            .unwrap_or_else(|| NamespaceLabels::from([(NAMESPACE_NAME.to_owned(), namespace.to_owned())]));
        hooks
            .iter()
            .filter(|hook| hook.is_consumer() && hook.concerns(&labels, &namespace_labels))
            .cloned()
            .collect()
    }
}

/// Sorts hooks by name. This runs for every change of a hook, including its status, so it must be fast.
fn sorted_by_name(hooks: impl Iterator<Item = Arc<Hook>>) -> Arc<[Arc<Hook>]> {
    let mut hooks: Vec<Arc<Hook>> = hooks.collect();
    hooks.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    hooks.into()
}

impl FromIterator<Hook> for ConsumerHooks {
    /// Returns a fixed set of hooks, for namespaces whose labels are unknown.
    fn from_iter<I: IntoIterator<Item = Hook>>(hooks: I) -> Self {
        let hooks = sorted_by_name(hooks.into_iter().map(Arc::new));
        Self { hooks: Arc::new(RwLock::new(hooks)), namespaces: None }
    }
}

/// Returns the hook if it is valid and a consumer. The lifecycle-controller reports an invalid hook to its owner. A later
/// version of Podward may have stored one that this version cannot read; it must not keep the others from being read.
fn consumer(hook: DeserializeGuard<LifecycleHook>) -> Option<Hook> {
    let name = hook.name_any();
    let read = hook.0.map_err(|error| error.to_string());
    match read.and_then(|hook| hook.to_hook().map_err(|error| error.to_string())) {
        Ok(hook) => hook.is_consumer().then_some(hook),
        Err(error) => {
            tracing::warn!(hook = name, error, "ignoring an invalid LifecycleHook");
            None
        }
    }
}
