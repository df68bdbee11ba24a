//! Pods in every state in which an uninstall of Podward could leave them stuck.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Pod, events::v1::Event,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::wait::conditions,
};
use podward_api::discovery_binding::BINDING_FINALIZER;
use podward_api::{DiscoveryBinding, LifecycleHook};
use podward_core::ConditionStatus;
use podward_core::hooks::{hook_finalizer, is_hook_finalizer};
use podward_core::keys::{
    self, CONTROL_LABEL, CONTROL_VALUE, Key, LIFECYCLE_CONDITION, SERVICE_READY_GATE, Stage,
};
use podward_images::{build_program, workspace_dir};
use podward_support::{
    await_condition,
    pods::{condition, describe, is_ready},
    within,
};
use serde_json::{Value, json};

use super::lives;
use super::site::Site;

pub(crate) const NAMESPACE: &str = "guarded";
/// A hook without a server, and the label of the pods that it holds.
const DEAF: &str = "deaf";
/// A DiscoveryBinding of a registry that does not exist.
const BOUND: &str = "bound";
/// The operation on [`GuardedPods::operated`].
const OPERATION: &str = "upgrade";
const LONG: Duration = Duration::from_secs(90);

/// Pods of the namespace [`NAMESPACE`].
pub(crate) struct GuardedPods {
    site: Arc<Site>,
    api: Api<Pod>,
    in_service: String,
    /// In the middle of an operation, with its gate False.
    operated: String,
    /// Deleted, and held by a hook that cannot be reached.
    held: String,
    /// Terminating, with the finalizer of that hook.
    dying: (String, String),
}

impl GuardedPods {
    pub(crate) async fn create(site: &Arc<Site>) -> Result<Self> {
        lives::make(site, Some(NAMESPACE)).await?;
        let hooks: Api<LifecycleHook> = Api::all(site.client());
        let hook = json!({
            "apiVersion": "podward.io/v1alpha1", "kind": "LifecycleHook", "metadata": {"name": DEAF},
            "spec": {
                "podSelector": {"matchLabels": {DEAF: "true"}}, "phases": ["Prepare", "Release"],
                "endpoint": {"url": "https://127.0.0.1:9"}, "deadlineSeconds": 1, "deadlinePolicy": "Hold", "failurePolicy": "Fail",
            },
        });
        hooks.create(&PostParams::default(), &serde_json::from_value(hook)?).await.context("make a hook")?;
        // As a service-discovery-bridge would leave it.
        let binding = json!({
            "apiVersion": "podward.io/v1alpha1", "kind": "DiscoveryBinding",
            "metadata": {"name": BOUND, "finalizers": [BINDING_FINALIZER]},
            "spec": {
                "selector": {"matchLabels": {BOUND: "true"}}, "registry": {"clusterRegistry": "none"},
                "service": {"name": "web"}, "port": 80,
            },
        });
        let bindings: Api<DiscoveryBinding> = Api::namespaced(site.client(), NAMESPACE);
        bindings
            .create(&PostParams::default(), &serde_json::from_value(binding)?)
            .await
            .context("make a binding")?;
        let pods: Api<Pod> = Api::namespaced(site.client(), NAMESPACE);
        let [in_service, operated] = &names(&pods, "app=web").await?[..] else {
            anyhow::bail!("there are not two pods");
        };
        until(&pods, in_service, "held by the traffic-controller", is_held).await?;
        begin(&pods, operated).await?;

        create(site, &pods, "held", json!({DEAF: "true"}), json!({})).await?;
        let broken = json!({keys::BREAK_GLASS: "a test of what a dying pod is held by"});
        create(site, &pods, "dying", json!({DEAF: "true"}), broken).await?;
        for name in ["held", "dying"] {
            until(&pods, name, "held by the hook", |pod| {
                is_ready(pod) && pod.finalizers().contains(&hook_finalizer(DEAF))
            })
            .await?;
        }
        match pods.delete("held", &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 429 => {}
            other => anyhow::bail!("the delete was not held: {other:?}"),
        }
        until(&pods, "held", "its deletion is requested and it is out of service", |pod| {
            pod.annotations().contains_key(keys::DELETION_REQUEST) && is_off(pod)
        })
        .await?;
        pods.delete("dying", &DeleteParams::default()).await.context("delete a pod by break-glass")?;
        let dying = until(&pods, "dying", "ended, and still there", has_ended).await?;
        ensure!(dying.finalizers().contains(&hook_finalizer(DEAF)), "{}", describe(&dying));
        Ok(GuardedPods {
            site: site.clone(),
            in_service: in_service.clone(),
            operated: operated.clone(),
            held: "held".to_owned(),
            dying: ("dying".to_owned(), dying.uid().context("a pod without UID")?),
            api: pods,
        })
    }

    /// The pod that stays unchanged.
    pub(crate) fn in_service(&self) -> &str {
        &self.in_service
    }

    /// Checks that nothing of Podward is left on any pod after the uninstall, and that the pods live and end without
    /// it.
    pub(crate) async fn are_free(&self) -> Result<()> {
        let (name, uid) = &self.dying;
        until_gone(&self.api, name, uid).await?;
        for name in [&self.in_service, &self.operated, &self.held] {
            is_free(&self.api, name).await?;
        }
        let operated = self.api.get(&self.operated).await?;
        for stage in [Stage::Operating, Stage::OperationType] {
            ensure!(operated.labels().contains_key(&stage.key(OPERATION)), "{}", describe(&operated));
        }
        let events: Api<Event> = Api::namespaced(self.site.client(), NAMESPACE);
        let events = events.list(&ListParams::default()).await.context("list events")?.items;
        for (pod, reason) in [(&self.held, "DeletionCancelled"), (&self.operated, "OperationInterrupted")] {
            let is_it = |event: &Event| {
                let name = event.regarding.as_ref().and_then(|regarding| regarding.name.as_ref());
                name == Some(pod) && event.reason.as_deref() == Some(reason)
            };
            ensure!(events.iter().any(is_it), "there is no event {reason} of pod {pod}");
        }
        let held = self.api.get(&self.held).await?.uid().context("a pod without UID")?;
        self.api.delete(&self.held, &DeleteParams::default()).await.context("delete a pod")?;
        until_gone(&self.api, &self.held, &held).await?;
        let of_the_guard = "jobs,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings";
        let left = self.site.kubectl(&["get", of_the_guard, "--output=name"]).await?;
        ensure!(!left.contains("uninstall-guard"), "{left}");
        let left = self
            .site
            .kubectl(&[
                "get",
                "mutatingwebhookconfigurations,validatingwebhookconfigurations",
                "--output=name",
            ])
            .await?;
        ensure!(!left.contains("podward"), "{left}");
        let bindings: Api<DiscoveryBinding> = Api::namespaced(self.site.client(), NAMESPACE);
        let binding = bindings.get(BOUND).await.context("read the binding")?;
        ensure!(binding.finalizers().is_empty(), "the binding has {:?}", binding.finalizers());
        bindings.delete(BOUND, &DeleteParams::default()).await.context("delete the binding")?;
        let hooks: Api<LifecycleHook> = Api::all(self.site.client());
        hooks.delete(DEAF, &DeleteParams::default()).await.context("delete the hook").map(drop)
    }
}

/// Podward is installed again, with pods that it has released.
pub(crate) async fn reinstalled(site: Arc<Site>) -> Result<()> {
    site.install().await?;
    let pods: Api<Pod> = Api::namespaced(site.client(), NAMESPACE);
    let operating = Stage::Operating.key(OPERATION);
    // The announced operation begins again and ends as usual.
    let operated = names(&pods, &operating).await?.pop().context("nothing is announced any more")?;
    let operate = Stage::Operate.key(OPERATION);
    until(&pods, &operated, "permitted to be operated on", |pod| pod.labels().contains_key(&operate)).await?;
    let finish =
        json!({"metadata": {"labels": {operating: null, Stage::OperationType.key(OPERATION): null}}});
    pods.patch(&operated, &PatchParams::default(), &Patch::Merge(finish)).await.context("finish")?;
    for name in names(&pods, "app=web").await? {
        until(&pods, &name, "in service and held", |pod| {
            is_held(pod) && pod.labels().contains_key(keys::SERVICE_AVAILABLE)
        })
        .await?;
    }
    lives::a_deleted_pod_is_drained_first(&site).await
}

/// An uninstall without the guard, followed by the steps in `docs/guides/uninstall.md`.
pub(crate) async fn skipped(site: Arc<Site>) -> Result<()> {
    let manual = UninstallPage::open(site.clone()).await?;
    let pods: Api<Pod> = Api::namespaced(site.client(), NAMESPACE);
    let [dying, off] = &names(&pods, "app=web").await?[..] else {
        anyhow::bail!("there are not two pods");
    };
    // The plugin releases those, kubectl alone releases these.
    for name in ["dying-too", "off-too"] {
        create(&site, &pods, name, json!({"app": "web"}), json!({})).await?;
        until(&pods, name, "held by the traffic-controller", is_held).await?;
    }
    begin(&pods, off).await?;
    begin(&pods, "off-too").await?;
    let early = manual.run("kubectl podward release --all", &[]).await;
    let early = early.err().context("pods were released while Podward was at work")?;
    ensure!(format!("{early:#}").contains("Podward is still running"), "{early:#}");

    let stop = ["release", "--all", "--stop-services", "--podward-namespace"];
    let elsewhere = site.plugin(&[&stop[..], &["elsewhere"]].concat()).await?;
    let said = String::from_utf8_lossy(&elsewhere.stderr);
    let words = "installed in namespace podward-system, and not in elsewhere; nothing was changed";
    ensure!(!elsewhere.status.success() && said.contains(words), "{elsewhere:?}");
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(site.client());
    webhooks.get("podward-mutating").await.context("the webhooks were deleted from another namespace")?;

    manual.run("helm uninstall podward --namespace podward-system --no-hooks --wait", &[]).await?;
    let mut uids = Vec::new();
    for name in [dying, "dying-too"] {
        uids.push(pods.get(name).await?.uid().context("a pod without UID")?);
        pods.delete(name, &DeleteParams::default()).await.context("delete a pod")?;
        let pod = until(&pods, name, "ended, and still there", has_ended).await?;
        ensure!(is_held(&pod), "{}", describe(&pod));
    }

    let single = "kubectl --namespace NAMESPACE patch pod POD --type=json --patch '[{\"op\": \"remove\", \"path\": \"/metadata/finalizers\"}]'";
    manual.run(single, &[("NAMESPACE", NAMESPACE), ("POD", "dying-too")]).await?;
    until_gone(&pods, "dying-too", &uids[1]).await?;
    let gate = "kubectl --namespace NAMESPACE patch pod POD --subresource=status --patch \
                '{\"status\": {\"conditions\": [{\"type\": \"pod.kusionstack.io/service-ready\", \"status\": \"True\"}]}}'";
    manual.run(gate, &[("NAMESPACE", NAMESPACE), ("POD", "off-too")]).await?;
    until(&pods, "off-too", "Ready", is_ready).await?;

    let said = manual.run("kubectl podward release --all --dry-run", &[]).await?;
    for name in [dying, off] {
        ensure!(said.contains(&format!("{NAMESPACE}/{name}: ")), "{said}");
    }
    ensure!(is_held(&pods.get(dying).await?), "a dry run has changed a pod");
    let said = manual.run("kubectl podward release --all", &[]).await?;
    ensure!(said.contains("failed: 0"), "{said}");
    until_gone(&pods, dying, &uids[0]).await?;
    is_free(&pods, off).await?;
    is_free(&pods, "off-too").await?;
    let again = manual.run("kubectl podward release --all", &[]).await?;
    ensure!(again.contains(" released: 0,"), "{again}");
    lives::remove(&site, NAMESPACE).await
}

/// The commands of `docs/guides/uninstall.md`.
struct UninstallPage {
    site: Arc<Site>,
    text: String,
    /// The folder of the plugin.
    folder: PathBuf,
}

impl UninstallPage {
    async fn open(site: Arc<Site>) -> Result<Self> {
        let page = workspace_dir().join("docs/guides/uninstall.md");
        let text = std::fs::read_to_string(&page).with_context(|| format!("read {}", page.display()))?;
        let plugin = build_program("kubectl-podward", "dev").await.context("build the plugin")?;
        let folder = plugin.parent().context("a program in no folder")?.to_owned();
        Ok(UninstallPage { site, text, folder })
    }

    /// Runs a command of the page, with names in place of its variables.
    async fn run(&self, line: &str, names: &[(&str, &str)]) -> Result<String> {
        ensure!(
            self.text.lines().any(|written| written == line),
            "docs/guides/uninstall.md doesn't say: {line}"
        );
        let filled = names.iter().fold(line.to_owned(), |line, (from, to)| line.replacen(from, to, 1));
        self.site.shell(&filled, &self.folder).await
    }
}

async fn names(pods: &Api<Pod>, selector: &str) -> Result<Vec<String>> {
    let list = pods.list(&ListParams::default().labels(selector)).await.context("list pods")?;
    Ok(list.iter().map(ResourceExt::name_any).collect())
}

async fn create(site: &Site, pods: &Api<Pod>, name: &str, labels: Value, annotations: Value) -> Result<()> {
    let mut labels = labels;
    labels[CONTROL_LABEL] = Value::from(CONTROL_VALUE);
    let probe = json!({"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {
            "containers": [{"name": "server", "image": site.image, "readinessProbe": probe}],
            "terminationGracePeriodSeconds": 1,
        },
    });
    let pod = serde_json::from_value(pod)?;
    pods.create(&PostParams::default(), &pod).await.with_context(|| format!("make pod {name}")).map(drop)
}

/// Announces [`OPERATION`] and waits for the permission.
async fn begin(pods: &Api<Pod>, name: &str) -> Result<()> {
    let labels = json!({Stage::Operating.key(OPERATION): "1", Stage::OperationType.key(OPERATION): "update"});
    let begin = Patch::Merge(json!({"metadata": {"labels": labels}}));
    pods.patch(name, &PatchParams::default(), &begin).await.context("announce an operation")?;
    let operate = Stage::Operate.key(OPERATION);
    until(pods, name, "permitted to be operated on", |pod| pod.labels().contains_key(&operate) && is_off(pod))
        .await
        .map(drop)
}

fn is_held(pod: &Pod) -> bool {
    pod.finalizers().contains(&hook_finalizer("traffic-controller"))
}

fn is_off(pod: &Pod) -> bool {
    condition(pod, SERVICE_READY_GATE) == Some(ConditionStatus::False)
}

/// Returns whether the kubelet has finished with the pod.
fn has_ended(pod: &Pod) -> bool {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let is_over = |state: &k8s_openapi::api::core::v1::ContainerStatus| {
        state.state.as_ref().is_some_and(|state| state.terminated.is_some())
    };
    pod.metadata.deletion_timestamp.is_some() && containers.into_iter().flatten().all(is_over)
}

/// Checks that the pod has nothing that only Podward writes, and is in service.
async fn is_free(pods: &Api<Pod>, name: &str) -> Result<()> {
    let pod = until(pods, name, "Ready", is_ready).await?;
    let finalizer = pod.finalizers().iter().find(|finalizer| is_hook_finalizer(finalizer));
    let label = pod.labels().keys().find(|key| {
        Key::parse(key).is_protected() || [keys::TO_DELETE, keys::PREPARING_TO_DELETE].contains(&key.as_str())
    });
    let ours = [
        keys::DELETION_REQUEST,
        keys::DELETE_TIMESTAMP,
        keys::HOOK_REQUESTS,
        keys::EVIDENCE,
        keys::RESULT_REFUSED,
        keys::AVAILABLE_CONDITIONS,
    ];
    let annotation = pod.annotations().keys().find(|key| ours.contains(&key.as_str()));
    let left = finalizer.or(label).or(annotation);
    ensure!(left.is_none(), "{left:?} is left on the pod {}", describe(&pod));
    ensure!(
        condition(&pod, LIFECYCLE_CONDITION).is_none(),
        "its condition is left on the pod {}",
        describe(&pod)
    );
    Ok(())
}

async fn until(pods: &Api<Pod>, name: &str, what: &str, is_it: impl Fn(&Pod) -> bool) -> Result<Pod> {
    let is_it = |pod: Option<&Pod>| pod.is_some_and(&is_it);
    let found = within(LONG, || format!("pod {name} to be {what}"), async {
        await_condition(pods.clone(), name, is_it).await.context("watch the pod")
    });
    found.await?.context("the pod is gone")
}

async fn until_gone(pods: &Api<Pod>, name: &str, uid: &str) -> Result<()> {
    within(LONG, || format!("pod {name} to be gone"), async {
        await_condition(pods.clone(), name, conditions::is_deleted(uid)).await.context("watch the pod")
    })
    .await
    .map(drop)
}
