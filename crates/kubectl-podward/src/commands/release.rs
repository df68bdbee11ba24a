//! `kubectl podward release`: removes Podward's metadata from pods.

mod bindings;
mod confirm;
mod events;
mod pass;
mod patch;
mod removals;
mod stop;
mod stopped;
mod tally;
mod write;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use kube::Client;
use podward_core::keys::TO_DELETE;
use podward_core::release::OtherFinalizers;
use tokio::time::{Instant, timeout_at};

use super::doctor::POLICY_BINDING;
use crate::connection::with_connection;
use crate::duration::duration;
use crate::object_target::{one_namespace_or_all, pod_name, usage};
use confirm::Confirm;
use pass::TargetPods;
use stop::PodwardInstallation;
use tally::ReleaseTally;
use write::ReleaseWriter;

/// Release pods from Podward, before or after it is uninstalled
///
/// Removes what would block pods without Podward: finalizers of hooks, recorded deletion requests (the pods stay until
/// they are deleted again) and all other metadata that only Podward writes. Sets readiness gates to True. The labels
/// with which operators announce operations stay. Pods are not drained: traffic continues.
///
/// At a terminal, shows what would change and asks first, also if the output goes to a file or a pipe.
///
/// Of all pods of a namespace or of the cluster, also removes Podward's finalizer from DiscoveryBindings. Their instances stay
/// in the registries.
///
/// With `discoverybinding/NAME`, releases the removals from a service registry that the removal limit of this binding
/// holds. Of a binding that was deleted while no service-discovery-bridge runs, removes the finalizer: its instances stay in
/// the registry.
#[derive(Debug, Args)]
pub(crate) struct Release {
    /// All pods of the cluster
    #[arg(long, conflicts_with = "pods")]
    all: bool,
    /// All pods of this namespace, or the namespace of the named pods
    #[arg(long, short)]
    namespace: Option<String>,
    /// Single pods, or discoverybinding/NAME, in the namespace of the kubeconfig's context if no namespace is given
    #[arg(value_name = "POD", value_parser = target_name)]
    pods: Vec<String>,
    /// With --all: stop Podward first, that is, delete its webhook configurations and scale its controllers to zero, and
    /// finally delete the binding of its policy. Without this option, Podward must be stopped already
    #[arg(long, requires = "all", conflicts_with = "pods")]
    stop_services: bool,
    /// Podward's namespace [default: podward-system]
    #[arg(long, env = "PODWARD_NAMESPACE", value_name = "NAMESPACE")]
    podward_namespace: Option<String>,
    /// Also remove the `prot.` finalizers of other controllers. Use it for controllers that no longer exist: others
    /// remove their finalizers themselves
    #[arg(long)]
    third_party_finalizers: bool,
    /// Only print what would change
    #[arg(long)]
    dry_run: bool,
    /// Do not ask. Without this option, a user at a terminal is shown what would change, and asked
    #[arg(long, short = 'y')]
    yes: bool,
    /// Maximum duration of the command: seconds, or a time such as 10m
    #[arg(long, value_name = "TIME", default_value = "600", value_parser = duration)]
    timeout: Duration,
}

/// What would change.
struct ReleasePlan {
    pods: ReleaseTally,
    /// A line for each DiscoveryBinding, by its name.
    bindings: BTreeMap<String, String>,
}

impl ReleasePlan {
    /// Returns whether the same pods and DiscoveryBindings change in both.
    fn is_like(&self, other: &Self) -> bool {
        self.pods.is_like(&other.pods) && self.bindings.keys().eq(other.bindings.keys())
    }
}

/// Parses the name of a pod, or of a DiscoveryBinding.
fn target_name(text: &str) -> Result<String> {
    if removals::binding_name(text).is_some() { Ok(text.to_owned()) } else { pod_name(text) }
}

impl Release {
    /// Checks what clap does not.
    ///
    /// # Errors
    /// When the arguments do not go together. It is an error of the command line.
    pub(crate) fn check(&self) -> Result<(), clap::Error> {
        one_namespace_or_all(self.namespace.as_deref(), self.all)?;
        if !self.all && self.namespace.is_none() && self.pods.is_empty() {
            return Err(usage("name pods, or give --namespace or --all"));
        }
        if self.pods.len() > 1 && self.pods.iter().any(|name| removals::binding_name(name).is_some()) {
            return Err(usage("name one DiscoveryBinding, and no pods with it"));
        }
        Ok(())
    }

    /// The arguments are those that [`check`](Self::check) accepts.
    pub(crate) async fn run(self, client: Client) -> Result<ExitCode> {
        let installation = PodwardInstallation::new(client.clone(), self.podward_namespace.as_deref());
        if let Some(name) = self.pods.first().and_then(|name| removals::binding_name(name)) {
            let namespace = self.namespace.as_deref();
            return removals::release(client, &installation, namespace, name, self.dry_run).await;
        }
        let user = Confirm::new(self.yes || self.dry_run)?;
        if self.stop_services {
            installation.check().await?;
        } else if !self.dry_run
            && let Some(running) = installation.still_running().await?
        {
            bail!(
                "Podward is still running ({running}) and would add its metadata to the pods again; stop it with --all \
                 --stop-services, or remove the label kusionstack.io/control from the pods: then Podward releases them"
            );
        }
        if let Some(user) = user
            && !self.is_confirmed(user, &client, &installation).await?
        {
            user.show("nothing was changed\n")?;
            return Ok(ExitCode::FAILURE);
        }
        // The answer may have taken a while.
        let deadline = Instant::now() + self.timeout;
        let mut stopped = None;
        if self.stop_services && self.dry_run {
            println!("would stop Podward: {}", installation.describe_stop());
        } else if self.stop_services {
            stopped = Some(installation.stop(deadline).await?);
        }
        let targets = TargetPods::new(&client, self.namespace.clone(), self.pods.clone());
        let bindings_are_free = match self.pods.is_empty() {
            true => {
                let released = bindings::release_all(&client, self.namespace.as_deref(), self.dry_run);
                self.in_time(deadline, "DiscoveryBindings", released).await?
            }
            false => true,
        };
        let writer = ReleaseWriter::new(client, self.other_finalizers(), self.dry_run);
        let mut tally = ReleaseTally::default();
        let passes = pass::release_all(&targets, &writer, &mut tally);
        let ended = self.in_time(deadline, "pods", passes).await;
        print!("{}", tally.summary(self.dry_run));
        ended?;
        if tally.has_failed() || !bindings_are_free {
            if stopped.is_some() {
                eprintln!(
                    "ValidatingAdmissionPolicyBinding {POLICY_BINDING} stays until the command succeeds, and denies the \
                     label {TO_DELETE}"
                );
            }
            return Ok(ExitCode::FAILURE);
        }
        if let Some(stopped) = stopped {
            installation.remove_policy_binding().await?;
            eprint!("{}", with_connection(&stopped.way_back()));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the result of `work` on `objects`.
    ///
    /// # Errors
    /// When it fails, or has not ended at `deadline`.
    async fn in_time<T>(
        &self,
        deadline: Instant,
        objects: &str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let too_late = |_| {
            anyhow!(
                "not all {objects} were checked within {:?}; run the command again, with a longer --timeout for a large \
                 cluster",
                self.timeout
            )
        };
        timeout_at(deadline, work).await.map_err(too_late)?
    }

    /// Shows what would change, and asks. Returns false if the user does not want it.
    ///
    /// # Errors
    /// When something else would change by the time of the answer.
    async fn is_confirmed(
        &self,
        user: Confirm,
        client: &Client,
        installation: &PodwardInstallation,
    ) -> Result<bool> {
        let shown = self.plan(client, ReleaseTally::shown_to(user)).await?;
        if self.stop_services {
            user.show(&format!("would stop Podward: {}\n", installation.describe_stop()))?;
        }
        for line in shown.bindings.values() {
            user.show(&format!("{line}\n"))?;
        }
        user.show(&shown.pods.summary(true))?;
        if !user.ask("Continue?").await? {
            return Ok(false);
        }
        if self.plan(client, ReleaseTally::quiet()).await?.is_like(&shown) {
            return Ok(true);
        }
        bail!(
            "other pods or DiscoveryBindings would be released by now, so nothing was changed: run the command again, or \
             with --yes"
        )
    }

    fn other_finalizers(&self) -> OtherFinalizers {
        if self.third_party_finalizers { OtherFinalizers::Remove } else { OtherFinalizers::Keep }
    }

    /// Returns what would change.
    async fn plan(&self, client: &Client, mut tally: ReleaseTally) -> Result<ReleasePlan> {
        let targets = TargetPods::new(client, self.namespace.clone(), self.pods.clone());
        let writer = ReleaseWriter::new(client.clone(), self.other_finalizers(), true);
        let deadline = Instant::now() + self.timeout;
        self.in_time(deadline, "pods", pass::release_all(&targets, &writer, &mut tally)).await?;
        let bindings = match self.pods.is_empty() {
            true => {
                let planned = bindings::plan(client, self.namespace.as_deref());
                self.in_time(deadline, "DiscoveryBindings", planned).await?
            }
            false => BTreeMap::new(),
        };
        Ok(ReleasePlan { pods: tally, bindings })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use hyper::StatusCode;
    use podward_support::api_answers::{Answer, failure, json_answer};
    use serde_json::json;

    use super::*;
    use crate::api_server;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        release: Release,
    }

    pub(super) fn parsed(line: &str) -> Result<Release, clap::Error> {
        Line::try_parse_from(std::iter::once("release").chain(line.split_whitespace()))
            .map(|line| line.release)
    }

    fn is_taken(line: &str) -> bool {
        parsed(line).is_ok_and(|release| release.check().is_ok())
    }

    #[test]
    fn the_pods_must_be_selected() {
        for line in ["--all", "--all --stop-services --dry-run", "-n shop", "-n shop web-0 web-1", "web-0"] {
            assert!(is_taken(line), "{line}");
        }
        for line in ["", "--stop-services", "--all -n shop", "--all web-0", "-n shop --stop-services"] {
            assert!(!is_taken(line), "{line}");
        }
    }

    #[test]
    fn pods_are_named_with_and_without_their_kind() {
        assert_eq!(parsed("pod/web-0 web-1").unwrap().pods, ["web-0", "web-1"]);
        assert_eq!(parsed("discoverybinding/web").unwrap().pods, ["discoverybinding/web"]);
        assert!(!is_taken("deploy/web"));
    }

    /// Plans a command line in a cluster without pods and with DiscoveryBindings of these names.
    async fn planned(line: &str, names: &'static [&'static str]) -> ReleasePlan {
        let client = api_server::client(move |request| {
            let binding = |name: &&str| {
                json!({"metadata": {
                    "namespace": "shop", "name": name, "finalizers": ["podward.io/discovery-binding"],
                }})
            };
            let items = match request.uri().path().ends_with("/discoverybindings") {
                true => names.iter().map(binding).collect(),
                false => Vec::new(),
            };
            Some(json_answer(&json!({"kind": "List", "metadata": {}, "items": items})))
        });
        parsed(line).unwrap().plan(&client, ReleaseTally::quiet()).await.unwrap()
    }

    #[tokio::test]
    async fn the_user_is_shown_the_bindings_too() {
        let shown = planned("-n shop", &["web"]).await;
        let lines: Vec<&String> = shown.bindings.values().collect();
        assert!(lines[0].starts_with("DiscoveryBinding shop/web: would remove its finalizers"), "{lines:?}");
        assert!(planned("-n shop", &["web"]).await.is_like(&shown));
        assert!(!planned("-n shop", &["web", "api"]).await.is_like(&shown));
    }

    fn list(items: &[serde_json::Value]) -> Answer {
        json_answer(&json!({"kind": "List", "metadata": {}, "items": items}))
    }

    /// Runs a command line where no webhooks and no pods exist, and a controller with so many replicas runs in namespace
    /// `elsewhere`. `None`: the Deployments of all namespaces may not be listed.
    async fn outcome(line: &str, replicas: Option<i32>) -> Result<ExitCode> {
        let client = api_server::client(move |request| {
            let path = request.uri().path();
            Some(match (path, replicas) {
                ("/apis/apps/v1/deployments", None) => failure(StatusCode::FORBIDDEN, "Forbidden"),
                ("/apis/apps/v1/deployments", Some(replicas)) => list(&[json!({
                    "metadata": {"namespace": "elsewhere", "name": "lifecycle-controller"},
                    "spec": {"replicas": replicas, "selector": {}, "template": {}},
                })]),
                _ if path.ends_with("/pods") || path.ends_with("/discoverybindings") => list(&[]),
                _ => failure(StatusCode::NOT_FOUND, "NotFound"),
            })
        });
        parsed(line).unwrap().run(client).await
    }

    #[tokio::test]
    async fn podward_in_another_namespace_is_not_overlooked() {
        for (replicas, words) in [
            (Some(2), "--podward-namespace elsewhere"),
            (None, "name the namespace in which Podward is, or was, with --podward-namespace"),
        ] {
            let error = format!("{:#}", outcome("-n shop -y", replicas).await.unwrap_err());
            assert!(error.contains(words), "{error}");
        }
        assert!(outcome("-n shop -y", Some(0)).await.is_ok(), "it is scaled down");
        let named = "-n shop -y --podward-namespace podward-system";
        assert!(outcome(named, None).await.is_ok(), "the user has said where it was");
        assert!(outcome(named, Some(2)).await.is_err());
    }

    #[tokio::test]
    async fn bindings_without_an_answer_end_at_the_timeout() {
        let client = api_server::client(|request| {
            let path = request.uri().path();
            match path.rsplit('/').next() {
                Some("discoverybindings") => None,
                Some("deployments" | "pods") => Some(list(&[])),
                _ => Some(failure(StatusCode::NOT_FOUND, "NotFound")),
            }
        });
        let release = || parsed("-n shop -y --timeout 1").unwrap();
        let long = Duration::from_secs(5);
        let (planning, running) = (release(), release());
        let planned = tokio::time::timeout(long, planning.plan(&client, ReleaseTally::quiet()))
            .await
            .expect("plan ends");
        assert!(planned.is_err());
        let ran = tokio::time::timeout(long, running.run(client.clone())).await.expect("run ends");
        assert!(ran.is_err());
    }
}
