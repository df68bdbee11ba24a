//! Who will hold a new pod: the hooks of the cluster that match it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, ResourceExt};
use parking_lot::RwLock;
use podward_api::LifecycleHook;
use podward_core::Pod;
use podward_core::hooks::Hook;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use podward_runtime::Setup;
use podward_runtime::watched::{Watch, WatchMetrics, Watched};

/// The label that the API server itself puts on each namespace.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

type Labels = BTreeMap<String, String>;

/// The hooks of the cluster, and the labels of its namespaces, as far as they are known. Clones share them.
///
/// What isn't known yet, or not any more, costs nothing but time: the pod is created with what is known, and the
/// lifecycle-controller, which knows them too, adds to it.
#[derive(Clone, Debug, Default)]
pub struct Consumers {
    /// By name.
    hooks: Arc<RwLock<Arc<[Arc<Hook>]>>>,
    namespaces: Option<Watched<Labels>>,
}

impl Consumers {
    /// Follows the hooks and namespaces of the cluster behind `client`. The process is ready once both are listed; a cluster without
    /// the LifecycleHook CRD has no hooks.
    #[must_use]
    pub fn follow(client: &Client, setup: &mut Setup) -> Self {
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
        let (all, set) = (Api::<LifecycleHook>::all(client.clone()), Arc::clone(&hooks));
        // The set holds what is kept; the watch itself goes on by itself.
        let _: Watched<Arc<Hook>> = Watched::keep(
            watch("lifecyclehooks", true),
            move || watcher(all.clone(), watcher::Config::default()),
            |hook| consumer(hook).map(Arc::new),
            move |hooks| *set.write() = by_name(hooks.values().cloned()),
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

    /// The hooks that `pod`, to be created in `namespace`, concerns as consumers. With `inject` it opts in by that.
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
        // One that was created a moment ago has this label in any case.
        let of_namespace =
            known.unwrap_or_else(|| Labels::from([(NAMESPACE_NAME.to_owned(), namespace.to_owned())]));
        hooks
            .iter()
            .filter(|hook| hook.is_consumer() && hook.concerns(&labels, &of_namespace))
            .cloned()
            .collect()
    }
}

/// Done at every change of any hook, status too, so it must cost little where there are many.
fn by_name(hooks: impl Iterator<Item = Arc<Hook>>) -> Arc<[Arc<Hook>]> {
    let mut hooks: Vec<Arc<Hook>> = hooks.collect();
    hooks.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    hooks.into()
}

impl FromIterator<Hook> for Consumers {
    /// These hooks and no others, for ever, in namespaces whose labels aren't known.
    fn from_iter<I: IntoIterator<Item = Hook>>(hooks: I) -> Self {
        let hooks = by_name(hooks.into_iter().map(Arc::new));
        Self { hooks: Arc::new(RwLock::new(hooks)), namespaces: None }
    }
}

/// The hook, if it is a consumer. The controller tells the hook's owner what is wrong with one that can't be right.
fn consumer(hook: LifecycleHook) -> Option<Hook> {
    match hook.to_hook() {
        Ok(hook) => hook.is_consumer().then_some(hook),
        Err(error) => {
            tracing::warn!(hook = hook.name_any(), %error, "a LifecycleHook that can't be right is left out");
            None
        }
    }
}
