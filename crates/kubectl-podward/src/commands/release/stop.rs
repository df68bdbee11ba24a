//! Podward's own services: checks whether they run, and stops them.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::core::Selector;
use kube::runtime::wait::await_condition;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::super::doctor::{BRIDGE, DEFAULT_NAMESPACE, PART_OF, POLICY_BINDING};
use super::stopped::{StoppedServices, is_scaled_down};
use crate::api::{is_forbidden, is_not_found, with_timeout};

/// The webhook configurations of the chart.
const MUTATING: &str = "podward-mutating";
const VALIDATING: &str = "podward-validating";
/// The services that write to pods, or to DiscoveryBindings, on their own.
const CONTROLLERS: [&str; 4] = ["lifecycle-controller", "traffic-controller", BRIDGE, "cloneset-controller"];

/// An installation of Podward in a namespace.
pub(super) struct PodwardInstallation {
    client: Client,
    namespace: String,
    /// Whether the user has named the namespace.
    is_named: bool,
}

impl PodwardInstallation {
    pub(super) fn new(client: Client, namespace: Option<&str>) -> Self {
        let (is_named, namespace) = (namespace.is_some(), namespace.unwrap_or(DEFAULT_NAMESPACE).to_owned());
        PodwardInstallation { client, namespace, is_named }
    }

    /// Returns what [`stop`](Self::stop) and [`remove_policy_binding`](Self::remove_policy_binding) would do, as text.
    pub(super) fn describe_stop(&self) -> String {
        format!(
            "delete webhook configurations {MUTATING} and {VALIDATING}, scale {} in namespace {} to zero, and, \
             when all pods are released, delete ValidatingAdmissionPolicyBinding {POLICY_BINDING}",
            CONTROLLERS.join(", "),
            self.namespace
        )
    }

    /// Returns the part of Podward that still runs and would undo a release, or `None`.
    ///
    /// # Errors
    /// When Podward runs in another namespace, or that cannot be seen, or the API server does not answer.
    pub(super) async fn still_running(&self) -> Result<Option<String>> {
        let webhooks: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let what = format!("look for webhook configuration {MUTATING}");
        if with_timeout(webhooks.get_metadata_opt(MUTATING)).await.context(what)?.is_some() {
            return Ok(Some(format!("its webhook configuration {MUTATING} exists")));
        }
        for name in CONTROLLERS {
            let found = self.deployment(name).await?;
            if found.is_some_and(|found| !is_scaled_down(&found)) {
                return Ok(Some(format!("Deployment {}/{name} has pods", self.namespace)));
            }
        }
        match self.runs_nowhere(&CONTROLLERS).await {
            Err(error) if is_forbidden(&error) && self.is_named => Ok(None),
            Err(error) if is_forbidden(&error) => Err(error.context(
                "nothing was changed, because Podward may run in another namespace: name the namespace in which \
                 Podward is, or was, with --podward-namespace",
            )),
            outcome => outcome.map(|()| None),
        }
    }

    /// Returns whether the service-discovery-bridge has pods, or is to have some.
    ///
    /// # Errors
    /// When Podward is installed in another namespace, or the API server does not answer.
    pub(super) async fn has_bridge(&self) -> Result<bool> {
        let is_known = self.has_webhooks().await?;
        if self.deployment(BRIDGE).await?.is_some_and(|found| !is_scaled_down(&found)) {
            return Ok(true);
        }
        if is_known {
            return Ok(false);
        }
        // No webhooks say where Podward is.
        self.runs_nowhere(&[BRIDGE]).await?;
        Ok(false)
    }

    /// Checks that none of these services has pods, or is to have some, in any namespace.
    ///
    /// # Errors
    /// When one has, or the API server does not answer.
    async fn runs_nowhere(&self, services: &[&str]) -> Result<()> {
        let deployments: Api<Deployment> = Api::all(self.client.clone());
        let params = ListParams::default().labels(PART_OF);
        let what = format!("look for Deployments with the label {PART_OF} in all namespaces");
        let found = with_timeout(deployments.list(&params)).await.context(what)?;
        let runs =
            |found: &&Deployment| services.contains(&found.name_any().as_str()) && !is_scaled_down(found);
        match found.iter().find(runs) {
            Some(found) => Err(self.installed_in(&found.namespace().unwrap_or_default())),
            None => Ok(()),
        }
    }

    /// Returns the error that Podward is in this namespace, and not in the given one.
    fn installed_in(&self, elsewhere: &str) -> Error {
        anyhow!(
            "Podward is installed in namespace {elsewhere}, and not in {}; nothing was changed: run the command again with \
             --podward-namespace {elsewhere}",
            self.namespace
        )
    }

    /// Returns whether there are Podward's webhook configurations.
    ///
    /// # Errors
    /// When they call Services in another namespace, or the API server does not answer.
    async fn has_webhooks(&self) -> Result<bool> {
        let webhooks: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let what = format!("look for webhook configuration {MUTATING}");
        let found = with_timeout(webhooks.get_opt(MUTATING)).await.context(what)?;
        let Some(found) = found else { return Ok(false) };
        match service_namespace(&found).filter(|namespace| *namespace != self.namespace) {
            Some(elsewhere) => Err(self.installed_in(elsewhere)),
            None => Ok(true),
        }
    }

    /// Checks that Podward is installed in the namespace: its webhooks call Services there, or, if there are no webhooks any
    /// more, its controllers are there, or nothing is left but the binding of its policy.
    ///
    /// # Errors
    /// When it is not, or the API server does not answer.
    pub(super) async fn check(&self) -> Result<()> {
        if self.has_webhooks().await? {
            return Ok(());
        }
        for name in CONTROLLERS {
            if self.deployment(name).await?.is_some() {
                return Ok(());
            }
        }
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        let what = format!("look for ValidatingAdmissionPolicyBinding {POLICY_BINDING}");
        if with_timeout(bindings.get_metadata_opt(POLICY_BINDING)).await.context(what)?.is_some() {
            return self.runs_nowhere(&CONTROLLERS).await;
        }
        bail!(
            "Podward is not installed in namespace {}; nothing was changed: name its namespace with --podward-namespace, or \
             leave out --stop-services if it was uninstalled",
            self.namespace
        )
    }

    /// Deletes the webhook configurations first, so that new pods get no gate and no request fails for a missing
    /// webhook. Then scales the controllers to zero, which would add finalizers again, and waits until their pods are
    /// gone. Returns what was scaled.
    ///
    /// # Errors
    /// When a request fails, or the pods are not gone at `deadline`.
    pub(super) async fn stop(&self, deadline: Instant) -> Result<StoppedServices> {
        self.remove::<MutatingWebhookConfiguration>(MUTATING).await?;
        self.remove::<ValidatingWebhookConfiguration>(VALIDATING).await?;
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut stopped = Vec::new();
        for name in CONTROLLERS {
            let Some(found) = self.deployment(name).await? else { continue };
            let what = format!("scale Deployment {}/{name} to zero", self.namespace);
            // An autoscaler ignores a Deployment with zero replicas.
            let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
            let params = PatchParams::default();
            with_timeout(deployments.patch_scale(name, &params, &none)).await.context(what)?;
            eprintln!("scaled Deployment {}/{name} to zero", self.namespace);
            stopped.push((name, found));
        }
        let mut services = StoppedServices::new(&self.namespace);
        for (name, deployment) in stopped {
            self.until_gone(name, &deployment, deadline).await?;
            services.add(name, &deployment);
        }
        Ok(services)
    }

    /// Deletes the binding of the policy, which would deny labels for ever without Podward. This is the last step: until
    /// then, the policy protects the annotations by which a later Podward would delete pods.
    ///
    /// # Errors
    /// When the request fails.
    pub(super) async fn remove_policy_binding(&self) -> Result<()> {
        self.remove::<ValidatingAdmissionPolicyBinding>(POLICY_BINDING).await
    }

    async fn deployment(&self, name: &str) -> Result<Option<Deployment>> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let what = format!("look for Deployment {}/{name}", self.namespace);
        with_timeout(deployments.get_opt(name)).await.context(what)
    }

    /// Deletes an object if it exists.
    async fn remove<K>(&self, name: &str) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let what = format!("delete {} {name}", K::kind(&()));
        let params = DeleteParams::default();
        match with_timeout(api.delete(name, &params)).await {
            Ok(_) => eprintln!("deleted {} {name}", K::kind(&())),
            // It was deleted before, or never existed.
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(error.context(what)),
        }
        Ok(())
    }

    /// Waits until the Deployment is scaled down, and then until its pods are gone, which can take their grace period.
    async fn until_gone(&self, name: &str, deployment: &Deployment, deadline: Instant) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let is_down = |found: Option<&Deployment>| found.is_none_or(is_scaled_down);
        let down = await_condition(deployments, name, is_down);
        let what = format!("Deployment {}/{name} to be scaled down", self.namespace);
        timeout_at(deadline, down)
            .await
            .map_err(|_| {
                anyhow!("timed out waiting for {what}; run the command again with a longer --timeout")
            })?
            .with_context(|| format!("wait for {what}"))?;
        let selector = deployment.spec.as_ref().map(|spec| spec.selector.clone()).unwrap_or_default();
        let mut left = BTreeSet::new();
        let ended = timeout_at(deadline, self.watch_pods(selector, &mut left)).await;
        if let Ok(outcome) = ended {
            return outcome
                .with_context(|| format!("watch the pods of Deployment {}/{name}", self.namespace));
        }
        let names = left.into_iter().collect::<Vec<_>>().join(", ");
        bail!(
            "timed out waiting for pods {names} of Deployment {}/{name} to end; if their node is lost, delete \
             them with `kubectl --namespace {} delete pod --force` and run the command again",
            self.namespace,
            self.namespace
        )
    }

    /// Watches the pods of `selector` until all are gone. `left` has the names of the remaining pods.
    async fn watch_pods(&self, selector: LabelSelector, left: &mut BTreeSet<String>) -> Result<()> {
        let selector: Selector = selector.try_into().context("read its selector")?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let events = watcher(pods, watcher::Config::default().labels_from(&selector));
        pin_mut!(events);
        let mut is_listed = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => left.clear(),
                Ok(Event::InitApply(pod) | Event::Apply(pod)) => {
                    left.insert(pod.name_any());
                }
                Ok(Event::InitDone) => is_listed = true,
                Ok(Event::Delete(pod)) => {
                    left.remove(&pod.name_any());
                }
                Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 403 => {
                    return Err(anyhow!("not allowed to list the pods: {status}"));
                }
                // The watcher restarts on its own.
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
            if is_listed && left.is_empty() {
                return Ok(());
            }
        }
        bail!("the watch ended")
    }
}

/// Returns the namespace of the Services that the webhooks call. `None` if they call URLs.
fn service_namespace(found: &MutatingWebhookConfiguration) -> Option<&str> {
    let mut services = found.webhooks.iter().flatten().filter_map(|it| it.client_config.service.as_ref());
    services.next().map(|service| service.namespace.as_str())
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;
    use std::sync::{Arc, Mutex};

    use hyper::{Method, StatusCode};
    use podward_support::api_answers::{failure, json_answer};

    use super::super::tests::parsed;
    use super::*;
    use crate::api_server;

    /// Runs `release --all --stop-services` with a pod to release. The writes with these words in the path are refused. If
    /// Podward is gone, only the binding of its policy is there. Returns whether it succeeded, and the writes.
    async fn written(refused: &'static str, is_gone: bool) -> (bool, Vec<String>) {
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&requests);
        let client = api_server::client(move |request| {
            let (path, is_read) = (request.uri().path(), request.method() == Method::GET);
            let last = path.rsplit('/').next().unwrap_or_default();
            if !is_read {
                seen.lock().unwrap().push(format!("{} {last}", request.method()));
            }
            let deployment = json!({
                "metadata": {"namespace": "podward-system", "name": "lifecycle-controller", "resourceVersion": "1"},
                "spec": {"replicas": 0, "selector": {}, "template": {}},
            });
            let list = |items: &[serde_json::Value]| {
                json_answer(&json!({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}))
            };
            let pod = |finalizers: &[&str]| {
                let metadata =
                    json!({"namespace": "shop", "name": "web", "uid": "u", "finalizers": finalizers});
                json!({"metadata": metadata})
            };
            Some(match (request.method(), path) {
                (_, path) if !is_read && path.contains(refused) => {
                    failure(StatusCode::FORBIDDEN, "Forbidden")
                }
                (&Method::DELETE, _) => json_answer(&json!({"kind": "Status", "status": "Success"})),
                (&Method::PATCH, path) if path.contains("discoverybindings") => {
                    json_answer(&json!({"metadata": {}}))
                }
                (_, "/api/v1/pods") => {
                    list(&[pod(&["prot.podopslifecycle.kusionstack.io/lifecyclehook-lb"])])
                }
                (_, "/api/v1/namespaces/shop/pods/web/status") => json_answer(&pod(&[])),
                _ => match last {
                    "lifecycle-controller" | "deployments" if is_gone && path.contains("namespaces") => {
                        failure(StatusCode::NOT_FOUND, "NotFound")
                    }
                    "deployments" if is_gone => list(&[]),
                    POLICY_BINDING => json_answer(&json!({"metadata": {"name": POLICY_BINDING}})),
                    "lifecycle-controller" => json_answer(&deployment),
                    "scale" => json_answer(&json!({"metadata": {}, "spec": {}, "status": {"replicas": 0}})),
                    "deployments" => list(&[deployment]),
                    "discoverybindings" => list(&[json!({"metadata": {
                        "namespace": "shop", "name": "web", "finalizers": ["podward.io/discovery-binding"],
                    }})]),
                    "pods" => list(&[]),
                    _ => failure(StatusCode::NOT_FOUND, "NotFound"),
                },
            })
        });
        let ended = parsed("--all --stop-services --yes").unwrap().run(client).await;
        let requests = requests.lock().unwrap().clone();
        let is_success = ended.is_ok_and(|code| format!("{code:?}") == format!("{:?}", ExitCode::SUCCESS));
        (is_success, requests)
    }

    #[tokio::test]
    async fn what_protects_pods_from_forged_requests_is_deleted_after_they_are_released() {
        let binding = format!("DELETE {POLICY_BINDING}");
        let (is_success, writes) = written("nothing", false).await;
        let stop = [
            "DELETE podward-mutating",
            "DELETE podward-validating",
            "PATCH scale",
            "PATCH web",
            "PATCH status",
        ];
        assert!(is_success && writes.starts_with(&stop.map(str::to_owned)), "{writes:?}");
        assert_eq!(writes.last(), Some(&binding), "{writes:?}");

        let (is_success, writes) = written("discoverybindings", false).await;
        assert!(!is_success && !writes.contains(&binding), "something is not released: {writes:?}");

        let (is_success, writes) = written("validatingadmissionpolicybindings", false).await;
        assert!(!is_success && writes.contains(&"PATCH status".to_owned()), "{writes:?}");
    }

    /// The first attempt has deleted the webhook configurations, and has failed.
    #[tokio::test]
    async fn a_command_that_failed_can_be_repeated_after_podward_is_gone() {
        let (is_success, writes) = written("nothing", true).await;
        assert!(is_success && writes.contains(&format!("DELETE {POLICY_BINDING}")), "{writes:?}");
    }
}
