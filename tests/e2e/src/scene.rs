//! What a test gets: a namespace, eyes on its pods, and Podward.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, future::try_join_all, stream};
use k8s_openapi::api::core::v1::{Event, Namespace, Pod, ServiceAccount};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use podward_api::LifecycleHook;
use podward_core::keys;
use podward_support::{
    Cluster, DemoImages, Installation, Operator, PodFeed, Timeline, TrafficLoop, WAIT, pods,
    timeline::PodReport, within,
};
use serde_json::{Value, json};

use crate::{
    collector::Collector,
    environment::{Environment, Running, user_cluster},
    kubectl::Kubectl,
    podward::Podward,
};

/// The name of the traffic loop that pods expect to be held by.
pub const CONSUMER: &str = "test-traffic";
/// The label by which a selector of namespaces names one; the hooks of a test have it, and go with the namespace.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// How often is looked at what can't be watched.
const POLL: Duration = Duration::from_millis(50);
/// On every namespace of a test: its name.
const TEST_LABEL: &str = "podward.io/test";

/// A test's own place.
#[derive(Debug)]
pub struct Scene {
    environment: Arc<Environment>,
    namespace: String,
    feed: PodFeed,
    timeline: Timeline,
    at_rest: AtomicBool,
    without_gaps: AtomicBool,
}

impl Scene {
    pub(crate) async fn open(environment: Arc<Environment>, test: &str) -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let client = environment.cluster.client();
        let namespace = format!(
            "{}-{}-{}",
            test.replace('_', "-"),
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::SeqCst)
        );
        let object: Namespace =
            serde_json::from_value(json!({"metadata": {"name": namespace, "labels": {TEST_LABEL: test}}}))?;
        Api::all(client.clone())
            .create(&PostParams::default(), &object)
            .await
            .context("make the namespace")?;
        until_pods_can_be_made(client.clone(), &namespace).await?;
        let timeline = Timeline::start(client.clone(), &namespace, "").await?;
        let feed = PodFeed::start(client.clone(), &namespace, "").await?;
        Ok(Self {
            environment,
            namespace,
            feed,
            timeline,
            at_rest: AtomicBool::new(true),
            without_gaps: AtomicBool::new(true),
        })
    }

    /// An administrator's client.
    #[must_use]
    pub fn client(&self) -> Client {
        self.feed.client()
    }

    /// The test's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The pods of the namespace.
    #[must_use]
    pub fn api(&self) -> Api<Pod> {
        self.feed.api()
    }

    /// Eyes on the pods of the namespace.
    #[must_use]
    pub fn feed(&self) -> &PodFeed {
        &self.feed
    }

    /// The record of all versions of the pods of the namespace.
    #[must_use]
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// What happened to the pod `name` so far.
    ///
    /// # Errors
    /// When there never was such a pod, or the timeline doesn't reach the present.
    pub async fn report(&self, name: &str) -> Result<PodReport> {
        self.timeline.catch_up().await?;
        self.timeline
            .report(false)
            .pod(name)
            .cloned()
            .with_context(|| format!("the timeline has no pod {name}"))
    }

    /// Podward, whose services the test may end and start.
    ///
    /// # Errors
    /// On a bed for tests that change Podward as a whole.
    pub fn podward(&self) -> Result<&Podward> {
        match &self.environment.running {
            Running::Divided(podward) => Ok(podward),
            Running::Whole(_) => bail!("tests change all of Podward here: nobody knows its pods one by one"),
        }
    }

    /// Podward, where it is installed by Helm.
    ///
    /// # Errors
    /// Where its services run as processes.
    pub fn installation(&self) -> Result<&Installation> {
        match &self.environment.running {
            Running::Whole(installation) => Ok(installation),
            Running::Divided(Podward::Installed(replicas)) => Ok(replicas.installation()),
            Running::Divided(Podward::Processes(_)) => {
                bail!("Podward isn't installed here: its services are processes")
            }
        }
    }

    /// Where everything runs.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.environment.cluster
    }

    /// What gets the traces of Podward's services.
    ///
    /// # Errors
    /// When there is none on this cluster.
    pub fn collector(&self) -> Result<&Collector> {
        self.environment.collector.as_ref().context("this cluster has no collector of traces")
    }

    /// The images of pods.
    #[must_use]
    pub fn images(&self) -> &DemoImages {
        &self.environment.images
    }

    /// An operator on the pods of the namespace.
    #[must_use]
    pub fn operator(&self, id: &str, operation_type: &str) -> Operator {
        Operator::new(&self.feed, id, operation_type)
    }

    /// A traffic loop for the pods that opted in.
    #[must_use]
    pub fn traffic(&self) -> TrafficLoop {
        let selector = format!("{}={}", keys::CONTROL_LABEL, keys::CONTROL_VALUE);
        TrafficLoop::start(self.api(), &selector, CONSUMER)
    }

    /// The test ends with pods that are not in service, or have labels left, on purpose.
    pub fn ends_in_the_middle(&self) {
        self.at_rest.store(false, Ordering::SeqCst);
    }

    /// The test takes the API server away: versions of pods may be missing in the record.
    pub fn may_miss_versions(&self) {
        self.without_gaps.store(false, Ordering::SeqCst);
    }

    /// A pod of the demo server with these `labels` and annotations, not made yet.
    ///
    /// # Errors
    /// When that is no pod.
    pub fn pod(&self, name: &str, labels: &Value, annotations: &Value) -> Result<Pod> {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": pods::server_spec(&self.environment.images.v1),
        });
        serde_json::from_value(pod).context("describe a pod")
    }

    /// Runs kubectl, by default in the test's namespace, and waits for its end.
    ///
    /// # Errors
    /// When it can't be run; that it fails is a result.
    pub async fn kubectl(&self, args: &[&str]) -> Result<Kubectl> {
        Kubectl::run(&self.environment.cluster, user_cluster().as_deref(), &self.namespace, args).await
    }

    /// Runs Podward's plugin of kubectl in the test's namespace.
    ///
    /// # Errors
    /// When it can't be run; that it fails is a result.
    pub async fn plugin(&self, args: &[&str]) -> Result<Kubectl> {
        let user = user_cluster();
        Kubectl::run_plugin(&self.environment.cluster, user.as_deref(), &self.namespace, args).await
    }

    /// Waits until an event with this reason tells of the object `name`, and gives its text.
    ///
    /// # Errors
    /// When there is none within [`WAIT`].
    pub async fn until_event(&self, name: &str, reason: &str) -> Result<String> {
        let events: Api<Event> = Api::namespaced(self.client(), &self.namespace);
        let config =
            watcher::Config::default().fields(&format!("involvedObject.name={name},reason={reason}"));
        let mut seen = std::pin::pin!(watcher(events, config).default_backoff().applied_objects());
        within(WAIT, || format!("an event {reason} of {name}"), async {
            let event = seen.try_next().await.context("watch events")?.context("the watch has ended")?;
            Ok(event.message.unwrap_or_default())
        })
        .await
    }

    /// Makes a pod that opted in and expects nobody.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn create(&self, name: &str) -> Result<Pod> {
        self.create_with(name, &json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE}), &json!({})).await
    }

    /// Makes a pod with these labels and annotations.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn create_with(&self, name: &str, labels: &Value, annotations: &Value) -> Result<Pod> {
        let pod = self.pod(name, labels, annotations)?;
        self.api().create(&PostParams::default(), &pod).await.with_context(|| format!("make pod {name}"))
    }

    /// Makes pods that opted in and expect the finalizer of [`traffic`](Self::traffic), and waits until they are available.
    ///
    /// # Errors
    /// When they don't become available.
    pub async fn in_service<const N: usize>(&self, names: [&str; N]) -> Result<()> {
        let employer = format!("Traffic/{}/{CONSUMER}", self.namespace);
        let expected = pods::expecting(&employer, &TrafficLoop::finalizer_of(CONSUMER));
        let labels = json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE});
        let annotations = json!({keys::AVAILABLE_CONDITIONS: expected});
        try_join_all(names.iter().map(|name| self.create_with(name, &labels, &annotations))).await?;
        try_join_all(names.iter().map(|name| self.until_available(name))).await.map(drop)
    }

    /// Waits until the pod is available.
    ///
    /// # Errors
    /// When it doesn't become so in time.
    pub async fn until_available(&self, name: &str) -> Result<Arc<Pod>> {
        self.feed.until(name, "it is available", pods::is_available).await
    }

    /// Sets (`Some`) and removes (`None`) labels of a pod in one write.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn label(&self, name: &str, labels: &[(&str, Option<&str>)]) -> Result<Pod> {
        let labels: serde_json::Map<_, _> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        self.patch(name, json!({"metadata": {"labels": labels}})).await
    }

    /// Sends a JSON merge patch of a pod.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn patch(&self, name: &str, patch: Value) -> Result<Pod> {
        let patched = self.api().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        patched.with_context(|| format!("patch pod {name} with {patch}"))
    }

    /// The invariants over all versions, and that nothing is left.
    pub(crate) async fn verify(&self) -> Result<()> {
        let timeline = &self.timeline;
        timeline
            .verify_with(self.at_rest.load(Ordering::SeqCst), self.without_gaps.load(Ordering::SeqCst))
            .await
            .map(drop)
    }

    /// Everything that helps to see why a test failed.
    pub(crate) async fn evidence(&self) -> String {
        let pods: Vec<String> = self
            .feed
            .all()
            .iter()
            .map(|pod| format!("  {}: {}", pod.name_any(), pods::describe(pod)))
            .collect();
        let events =
            Api::<Event>::namespaced(self.client(), &self.namespace).list(&ListParams::default()).await;
        let events: Vec<String> = match events {
            Ok(events) => events.items.iter().map(describe_event).collect(),
            Err(error) => vec![format!("  cannot be read: {error}")],
        };
        let report = self.timeline.report(false);
        let timelines: String = report.pods.iter().map(podward_support::timeline::render::pod).collect();
        format!(
            "failed in namespace {}; logs are in {}\npods:\n{}\nevents:\n{}\ntimelines:\n{timelines}\nlast lines of the services:\n{}\nwhy",
            self.namespace,
            self.environment.cluster.logs_dir().display(),
            pods.join("\n"),
            events.join("\n"),
            self.environment.running.last_words().await,
        )
    }

    /// Takes the namespace away. Pods are not waited for: their consumers end with the test.
    pub(crate) async fn close(&self) -> Result<()> {
        if std::env::var_os("PODWARD_E2E_KEEP").is_some() {
            return Ok(());
        }
        let namespaces: Api<Namespace> = Api::all(self.client());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await.context("delete the namespace")?;
        let delete = async {
            let params = DeleteParams::default().grace_period(0);
            // Podward may not have heard yet that the namespace goes.
            loop {
                match self.api().delete_collection(&params, &ListParams::default()).await {
                    Err(kube::Error::Api(status)) if status.code == 429 => tokio::time::sleep(POLL).await,
                    deleted => return deleted.map(drop).context("delete the pods"),
                }
            }
        };
        within(WAIT, || format!("the pods of {} to be deleted", self.namespace), delete).await?;
        for pod in self.feed.all().iter().filter(|pod| pods::holders(pod).next().is_some()) {
            let freed = self.patch(&pod.name_any(), json!({"metadata": {"finalizers": null}})).await;
            // The pod may be gone by now.
            drop(freed);
        }
        self.remove_hooks().await
    }

    /// Hooks are nobody's when the namespace is gone that they were for.
    async fn remove_hooks(&self) -> Result<()> {
        let hooks: Api<LifecycleHook> = Api::all(self.client());
        let listed = hooks.list(&ListParams::default()).await.context("list the hooks")?;
        let is_ours = |hook: &&LifecycleHook| {
            let selector = hook.spec.namespace_selector.as_ref();
            let labels = selector.and_then(|selector| selector.match_labels.as_ref());
            labels.and_then(|labels| labels.get(NAMESPACE_NAME)) == Some(&self.namespace)
        };
        let ours: Vec<String> = listed.items.iter().filter(is_ours).map(ResourceExt::name_any).collect();
        let params = DeleteParams::default();
        let delete = async |name: &String| match hooks.delete(name, &params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => deleted.map(drop).with_context(|| format!("delete hook {name}")),
        };
        stream::iter(&ours).map(delete).buffer_unordered(16).try_collect::<()>().await
    }
}

/// No pod can be made before the cluster has made the account that pods get.
async fn until_pods_can_be_made(client: Client, namespace: &str) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
    let made = async {
        while accounts.get_opt("default").await.context("look for the service account")?.is_none() {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    };
    within(WAIT, || format!("the service account of namespace {namespace}"), made).await
}

fn describe_event(event: &Event) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let name = text(&event.involved_object.name);
    format!("  {name}: {} {}: {}", text(&event.type_), text(&event.reason), text(&event.message))
}
