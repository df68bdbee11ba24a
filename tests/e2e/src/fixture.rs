//! The fixture of a test: a namespace, a watch on its pods, and Podward.

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
use podward_images::DemoImages;
use podward_support::{
    Cluster, Installation, Operator, PodFeed, Timeline, TrafficLoop, WAIT, despite_late_webhook, pods,
    timeline::PodReport, within,
};
use serde_json::{Value, json};

use crate::{
    collector::Collector,
    environment::{Environment, RunningPodward, user_cluster},
    kubectl::Kubectl,
    podward::Podward,
};

/// The name of the consumer that pods expect.
pub const CONSUMER: &str = "test-traffic";
/// The label with the name of a namespace. The hooks of a test select namespaces by it.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// The interval of checks that cannot use a watch.
const POLL: Duration = Duration::from_millis(50);
/// The label with the test's name. Every namespace of a test has it.
const TEST_LABEL: &str = "podward.io/test";

/// The namespace of a test, with its observers.
#[derive(Debug)]
pub struct Fixture {
    environment: Arc<Environment>,
    namespace: String,
    feed: PodFeed,
    timeline: Timeline,
    at_rest: AtomicBool,
    without_gaps: AtomicBool,
}

impl Fixture {
    pub(crate) async fn open(environment: Arc<Environment>, test: &str) -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let client = environment.cluster.client();
        let number = format!("-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::SeqCst));
        // A name of a namespace has at most 63 characters.
        let test_name: String = test.replace('_', "-").chars().take(63 - number.len()).collect();
        let namespace = format!("{test_name}{number}");
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

    /// Returns a client with the rights of an administrator.
    #[must_use]
    pub fn client(&self) -> Client {
        self.feed.client()
    }

    /// Returns the test's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the pods of the namespace.
    #[must_use]
    pub fn api(&self) -> Api<Pod> {
        self.feed.api()
    }

    /// Returns the watch on the pods of the namespace.
    #[must_use]
    pub fn feed(&self) -> &PodFeed {
        &self.feed
    }

    /// Returns the record of all versions of the pods of the namespace.
    #[must_use]
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Returns what happened to the pod `name` so far.
    ///
    /// # Errors
    /// Fails if the pod never existed, or the timeline does not catch up.
    pub async fn report(&self, name: &str) -> Result<PodReport> {
        self.timeline.catch_up().await?;
        self.timeline
            .report(false)
            .pod(name)
            .cloned()
            .with_context(|| format!("the timeline has no pod {name}"))
    }

    /// Returns Podward, whose services the test may stop and start.
    ///
    /// # Errors
    /// Fails on a test cluster for tests that change the whole installation.
    pub fn podward(&self) -> Result<&Podward> {
        match &self.environment.running {
            RunningPodward::Divided(podward) => Ok(podward),
            RunningPodward::Whole(_) => {
                bail!("Podward is installed as a whole here: its services cannot be stopped one by one")
            }
        }
    }

    /// Returns the installation of Podward with Helm.
    ///
    /// # Errors
    /// Fails if the services run as processes.
    pub fn installation(&self) -> Result<&Installation> {
        match &self.environment.running {
            RunningPodward::Whole(installation) => Ok(installation),
            RunningPodward::Divided(Podward::Installed(replicas)) => Ok(replicas.installation()),
            RunningPodward::Divided(Podward::Processes(_)) => {
                bail!("Podward isn't installed here: its services are processes")
            }
        }
    }

    /// Returns the cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.environment.cluster
    }

    /// Returns the collector of the traces of Podward's services.
    ///
    /// # Errors
    /// Fails if the cluster has none.
    pub fn collector(&self) -> Result<&Collector> {
        self.environment.collector.as_ref().context("this cluster has no collector of traces")
    }

    /// Returns the images of pods.
    #[must_use]
    pub fn images(&self) -> &DemoImages {
        &self.environment.images
    }

    /// Returns an operator for the pods of the namespace.
    #[must_use]
    pub fn operator(&self, id: &str, operation_type: &str) -> Operator {
        Operator::new(&self.feed, id, operation_type)
    }

    /// Returns a traffic loop for the pods that opted in.
    #[must_use]
    pub fn traffic(&self) -> TrafficLoop {
        let selector = format!("{}={}", keys::CONTROL_LABEL, keys::CONTROL_VALUE);
        TrafficLoop::start(self.api(), &selector, CONSUMER)
    }

    /// Allows pods that are not available or have labels of operations at the end of the test.
    pub fn ends_in_the_middle(&self) {
        self.at_rest.store(false, Ordering::SeqCst);
    }

    /// Allows gaps in the record, for tests that stop the API server.
    pub fn may_miss_versions(&self) {
        self.without_gaps.store(false, Ordering::SeqCst);
    }

    /// Returns a pod of the demo server with these `labels` and annotations. It does not create it.
    ///
    /// # Errors
    /// Fails if the result is not a valid pod.
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
    /// Fails if kubectl cannot be started. A failure of kubectl is part of the result.
    pub async fn kubectl(&self, args: &[&str]) -> Result<Kubectl> {
        Kubectl::run(&self.environment.cluster, user_cluster().as_deref(), &self.namespace, args).await
    }

    /// Runs Podward's plugin of kubectl in the test's namespace.
    ///
    /// # Errors
    /// Fails if the plugin cannot be started. A failure of the plugin is part of the result.
    pub async fn plugin(&self, args: &[&str]) -> Result<Kubectl> {
        self.plugin_in(&self.namespace, args).await
    }

    /// As [`plugin`](Self::plugin), for another namespace.
    ///
    /// # Errors
    /// As for [`plugin`](Self::plugin).
    pub async fn plugin_in(&self, namespace: &str, args: &[&str]) -> Result<Kubectl> {
        let user = user_cluster();
        Kubectl::run_plugin(&self.environment.cluster, user.as_deref(), namespace, args).await
    }

    /// Returns the command that runs Podward's plugin in the test's namespace, for a test that reads its output meanwhile.
    ///
    /// # Errors
    /// Fails if the plugin cannot be built.
    pub async fn plugin_command(&self, args: &[&str]) -> Result<tokio::process::Command> {
        let user = user_cluster();
        Kubectl::plugin(&self.environment.cluster, user.as_deref(), &self.namespace, args).await
    }

    /// Waits for an event with this reason for the object `name`, and returns its message.
    ///
    /// # Errors
    /// Fails if there is none within [`WAIT`].
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

    /// Creates a pod that is opted in and expects no consumer.
    ///
    /// # Errors
    /// Fails if the API server rejects it.
    pub async fn create(&self, name: &str) -> Result<Pod> {
        self.create_with(name, &json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE}), &json!({})).await
    }

    /// Creates a pod with these labels and annotations.
    ///
    /// # Errors
    /// Fails if the API server rejects it.
    pub async fn create_with(&self, name: &str, labels: &Value, annotations: &Value) -> Result<Pod> {
        let pod = self.pod(name, labels, annotations)?;
        let (api, parameters) = (self.api(), PostParams::default());
        let made = despite_late_webhook(|| api.create(&parameters, &pod)).await;
        made.with_context(|| format!("make pod {name}"))
    }

    /// Creates pods that are opted in and expect the finalizer of [`traffic`](Self::traffic), and waits until they
    /// are available.
    ///
    /// # Errors
    /// Fails if they do not become available.
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
    /// Fails if it does not become available in time.
    pub async fn until_available(&self, name: &str) -> Result<Arc<Pod>> {
        self.feed.until(name, "it is available", pods::is_available).await
    }

    /// Sets (`Some`) and removes (`None`) labels of a pod in one write.
    ///
    /// # Errors
    /// Fails if the API server refuses.
    pub async fn label(&self, name: &str, labels: &[(&str, Option<&str>)]) -> Result<Pod> {
        let labels: serde_json::Map<_, _> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        self.patch(name, json!({"metadata": {"labels": labels}})).await
    }

    /// Sends a JSON merge patch of a pod.
    ///
    /// # Errors
    /// Fails if the API server refuses.
    pub async fn patch(&self, name: &str, patch: Value) -> Result<Pod> {
        let (api, parameters, change) = (self.api(), PatchParams::default(), Patch::Merge(&patch));
        let patched = despite_late_webhook(|| api.patch(name, &parameters, &change)).await;
        patched.with_context(|| format!("patch pod {name} with {patch}"))
    }

    /// Checks the invariants on all versions, and that no label of an operation is left.
    pub(crate) async fn verify(&self) -> Result<()> {
        let timeline = &self.timeline;
        timeline
            .verify_with(self.at_rest.load(Ordering::SeqCst), self.without_gaps.load(Ordering::SeqCst))
            .await
            .map(drop)
    }

    /// Returns information on the failure of the test.
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
            self.environment.running.diagnostics().await,
        )
    }

    /// Deletes the namespace. It does not wait for consumers, because the consumers of the pods end with the test.
    pub(crate) async fn close(&self) -> Result<()> {
        if std::env::var_os("PODWARD_E2E_KEEP").is_some() {
            return Ok(());
        }
        let namespaces: Api<Namespace> = Api::all(self.client());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await.context("delete the namespace")?;
        let delete = async {
            let params = DeleteParams::default().grace_period(0);
            // Podward may not know yet that the namespace is being deleted.
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
            // The pod may be gone already.
            drop(freed);
        }
        self.remove_hooks().await
    }

    /// Removes the hooks of the test. They are cluster-scoped, so they are not deleted with the namespace.
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

/// Waits for the default service account, which pods need.
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
