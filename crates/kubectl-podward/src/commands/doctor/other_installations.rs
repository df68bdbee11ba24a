//! Checks for other software that acts on the same pods.

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::configurations::{self, Webhook, WebhookConfiguration};
use super::finding::Finding;
use super::target::{DoctorTarget, has_argument};

/// The API group of KusionStack's kuperator, whose controller-manager implements the same protocol.
const KUPERATOR_GROUP: &str = ".apps.kusionstack.io";
const KUPERATOR: &str = "kusionstack";
/// The API groups of OpenKruise.
const KRUISE_GROUPS: [&str; 2] = [".apps.kruise.io", ".policy.kruise.io"];
const KRUISE: &str = "kruise";
/// The definition of OpenKruise that Podward installs too, for its cloneset-controller.
const CLONESETS: &str = "clonesets.apps.kruise.io";
const CLONESET_CONTROLLER: &str = "cloneset-controller";
/// Its argument if it acts beside OpenKruise, too.
const ALWAYS: &str = "--mode=always";
/// The suffix of the names of Podward's webhooks.
const PODWARD_SUFFIX: &str = ".podward.io";
/// The operations that Podward holds: deletes and evictions of pods.
const HELD_OPERATIONS: [(&str, &str); 2] = [("DELETE", "pods"), ("CREATE", "pods/eviction")];

pub(super) async fn check(target: &DoctorTarget) -> Result<Vec<Finding>> {
    let definitions: Api<CustomResourceDefinition> = Api::all(target.client.clone());
    // Only the names are needed. The schemas of hundreds of definitions have several megabytes.
    let definitions = definitions.list_metadata(&ListParams::default()).await;
    let definitions = definitions.context("list resource definitions")?.items;
    let definitions: Vec<String> = definitions.iter().map(ResourceExt::name_any).collect();
    let found = configurations::list(&target.client).await?;
    let (ours, others): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|found| target.manifests.webhooks.iter().any(|ours| ours.name == found.name));
    drop(ours);
    let mut findings = judge(&definitions, &others);
    findings.extend(clonesets(&definitions, &target.deployments().await?));
    Ok(findings)
}

/// `others` are the webhook configurations that do not belong to this installation.
fn judge(definitions: &[String], others: &[WebhookConfiguration]) -> Vec<Finding> {
    let mut findings: Vec<_> = [podward(others), kuperator(definitions, others), kruise(definitions, others)]
        .into_iter()
        .flatten()
        .collect();
    findings.extend(other_blocking_webhooks(others));
    if findings.is_empty() {
        findings.push(Finding::ok("no other software acts on Podward's pods"));
    }
    findings
}

fn podward(others: &[WebhookConfiguration]) -> Option<Finding> {
    let another =
        others.iter().find(|found| found.hooks.iter().any(|hook| hook.name.ends_with(PODWARD_SUFFIX)))?;
    Some(Finding::failed(
        format!("another Podward: webhook configuration {} calls {}", another.name, places(another)),
        "both would act on the same pods; uninstall one of them with helm, or delete the rest of it",
    ))
}

fn kuperator(definitions: &[String], others: &[WebhookConfiguration]) -> Option<Finding> {
    let configurations: Vec<&str> =
        others.iter().filter(|found| belongs_to(found, KUPERATOR)).map(|found| found.name.as_str()).collect();
    let ours: Vec<String> = podward_api::crds().iter().map(ResourceExt::name_any).collect();
    let is_its = |name: &&String| name.ends_with(KUPERATOR_GROUP) && !ours.contains(name);
    let definitions = definitions.iter().filter(is_its).count();
    if !configurations.is_empty() {
        return Some(Finding::warning(
            format!(
                "KusionStack's kuperator is installed (webhook configurations {}): it writes the same labels, \
                 readiness gate and deletion hold on pods with kusionstack.io/control=true",
                configurations.join(", ")
            ),
            "only one of the two may manage a pod: turn off kuperator's PodOpsLifecycle and grace delete, or \
             uninstall it; both would follow PodTransitionRules, and Podward does not manage \
             kuperator's workloads (CollaSet)",
        ));
    }
    (definitions > 0).then(|| {
        Finding::note(format!(
            "{definitions} resource definitions of KusionStack's kuperator exist, but none of its webhooks: \
             there is no conflict"
        ))
    })
}

fn kruise(definitions: &[String], others: &[WebhookConfiguration]) -> Option<Finding> {
    let is_there = defines_kruise(definitions) || others.iter().any(|found| belongs_to(found, KRUISE));
    is_there.then(|| Finding::note("OpenKruise is installed: it is compatible with Podward"))
}

fn defines_kruise(definitions: &[String]) -> bool {
    let is_its = |name: &String| name != CLONESETS && KRUISE_GROUPS.iter().any(|group| name.ends_with(group));
    definitions.iter().any(is_its)
}

/// `deployments` are Podward's.
fn clonesets(definitions: &[String], deployments: &[Deployment]) -> Option<Finding> {
    let acts_always = deployments.iter().any(|found| {
        found.name_any() == CLONESET_CONTROLLER && has_argument(found, |argument| argument == ALWAYS)
    });
    (acts_always && defines_kruise(definitions)).then(|| {
        Finding::warning(
            "the cloneset-controller acts on CloneSets although OpenKruise is installed",
            "if OpenKruise's controller of CloneSets runs, both act on the same pods: set cloneset.enabled to auto, or \
             turn that controller off",
        )
    })
}

/// Returns true if the name of the configuration, or of a Service that it calls, contains `word`.
fn belongs_to(configuration: &WebhookConfiguration, word: &str) -> bool {
    let of_service = |hook: &Webhook| hook.service.as_ref().is_some_and(|(_, name)| is_of(name, word));
    is_of(&configuration.name, word) || configuration.hooks.iter().any(of_service)
}

fn is_of(name: &str, word: &str) -> bool {
    name.split(['-', '.']).any(|part| part == word)
}

/// Returns notes on other webhooks that block deletes or evictions of pods while they are down.
fn other_blocking_webhooks(others: &[WebhookConfiguration]) -> Vec<Finding> {
    let known = |found: &&WebhookConfiguration| {
        !belongs_to(found, KUPERATOR) && !found.hooks.iter().any(|hook| hook.name.ends_with(PODWARD_SUFFIX))
    };
    let is_strict = |hook: &&Webhook| {
        hook.fails_closed
            && HELD_OPERATIONS.iter().any(|(operation, resource)| hook.intercepts(operation, resource))
    };
    let of_one = |found: &WebhookConfiguration| {
        let strict: Vec<&str> = found.hooks.iter().filter(is_strict).map(|hook| hook.name.as_str()).collect();
        (!strict.is_empty()).then(|| {
            Finding::note(format!(
                "deletes or evictions of pods also call {} (of {}), and fail while it does not answer",
                strict.join(", "),
                found.name
            ))
        })
    };
    others.iter().filter(known).filter_map(of_one).collect()
}

fn places(found: &WebhookConfiguration) -> String {
    let mut places: Vec<String> = found
        .hooks
        .iter()
        .map(|hook| match &hook.service {
            Some((namespace, name)) => format!("Service {namespace}/{name}"),
            None => "a URL".to_owned(),
        })
        .collect();
    places.dedup();
    places.join(", ")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
    use serde_json::json;

    use super::super::finding::FindingLevel;
    use super::*;

    fn configuration(
        name: &str,
        hook: &str,
        operation: &str,
        resource: &str,
        fails_closed: bool,
    ) -> WebhookConfiguration {
        let list = |text: &str| Some(vec![text.to_owned()]);
        let rule = RuleWithOperations {
            api_groups: list(""),
            operations: list(operation),
            resources: list(resource),
            ..RuleWithOperations::default()
        };
        let service = Some(("there".to_owned(), "server".to_owned()));
        let hook =
            Webhook { name: hook.to_owned(), service, fails_closed, rules: vec![rule], ..Webhook::default() };
        WebhookConfiguration { name: name.to_owned(), hooks: vec![hook], ..WebhookConfiguration::default() }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn no_other_installation_is_ok() {
        let definitions = names(&[
            "lifecyclehooks.podward.io",
            "podtransitionrules.apps.kusionstack.io",
            "issuers.cert-manager.io",
        ]);
        let harmless = [
            configuration("a", "a.example", "CREATE", "pods", true),
            configuration("b", "b.example", "DELETE", "pods", false),
            configuration("c", "c.example", "DELETE", "services", true),
        ];
        let findings = judge(&definitions, &harmless);
        assert!(findings.len() == 1 && findings[0].level == FindingLevel::Ok, "{findings:?}");
    }

    #[test]
    fn kuperator_is_a_conflict_only_while_it_acts() {
        let definitions = names(&["collasets.apps.kusionstack.io", "podtransitionrules.apps.kusionstack.io"]);
        let left = judge(&definitions, &[]);
        assert!(left.len() == 1 && left[0].level == FindingLevel::Note, "{left:?}");
        let webhooks = configuration(
            "kusionstack-controller-manager-mutating",
            "mutating-pod.x",
            "DELETE",
            "pods",
            true,
        );
        let found = judge(&definitions, &[webhooks]);
        assert!(found.len() == 1 && found[0].level == FindingLevel::Warning, "{found:?}");
        assert!(found[0].what.contains("kusionstack-controller-manager-mutating"));
    }

    #[test]
    fn open_kruise_is_a_note() {
        let found = judge(&names(&[CLONESETS, "sidecarsets.apps.kruise.io"]), &[]);
        assert!(found[0].level == FindingLevel::Note && found[0].what.contains("OpenKruise"), "{found:?}");
        assert_eq!(judge(&names(&[CLONESETS]), &[])[0].level, FindingLevel::Ok);
        let webhooks =
            configuration("kruise-validating-webhook-configuration", "vpod.kb.io", "CREATE", "pods", true);
        assert_eq!(judge(&[], &[webhooks])[0].level, FindingLevel::Note);
    }

    #[test]
    fn two_controllers_of_clonesets_are_a_warning() {
        let deployment = |argument: &str| -> Vec<Deployment> {
            let pod = json!({"containers": [{"name": CLONESET_CONTROLLER, "args": [argument]}]});
            let spec = json!({"selector": {}, "template": {"spec": pod}});
            let found = json!({"metadata": {"name": CLONESET_CONTROLLER}, "spec": spec});
            vec![serde_json::from_value(found).unwrap()]
        };
        let definitions = names(&[CLONESETS, "sidecarsets.apps.kruise.io"]);
        let found = clonesets(&definitions, &deployment(ALWAYS)).unwrap();
        assert_eq!(found.level, FindingLevel::Warning, "{found:?}");
        assert!(clonesets(&definitions, &deployment("--mode=auto")).is_none());
        assert!(clonesets(&names(&[CLONESETS]), &deployment(ALWAYS)).is_none());
        assert!(clonesets(&definitions, &[]).is_none());
    }

    #[test]
    fn another_podward_is_a_failure() {
        let another = configuration("podward-old", "delete.validating.podward.io", "DELETE", "pods", true);
        let found = judge(&[], &[another]);
        assert!(found.len() == 1 && found[0].level == FindingLevel::Failed, "{found:?}");
        assert!(found[0].what.contains("podward-old calls Service there/server"), "{found:?}");
    }

    #[test]
    fn other_webhooks_that_block_deletes_are_named() {
        for (operation, resource) in [
            ("DELETE", "pods"),
            ("*", "*"),
            ("CREATE", "pods/eviction"),
            ("CREATE", "*/*"),
            ("DELETE", "pods/*"),
        ] {
            let found = judge(&[], &[configuration("policy", "all.example", operation, resource, true)]);
            assert!(
                found[0].level == FindingLevel::Note && found[0].what.contains("all.example (of policy)"),
                "{operation} {resource}: {found:?}"
            );
        }
    }
}
