//! Other installations that act on the same pods.

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::finding::Finding;
use super::hooks::{self, Configuration, Hook};
use super::site::Site;

/// Of KusionStack's kuperator, whose controller-manager speaks the same protocol.
const KUPERATOR_GROUP: &str = ".apps.kusionstack.io";
const KUPERATOR: &str = "kusionstack";
/// Of OpenKruise.
const KRUISE_GROUPS: [&str; 2] = [".apps.kruise.io", ".policy.kruise.io"];
const KRUISE: &str = "kruise";
/// The end of the names of Podward's webhooks.
const OURS: &str = ".podward.io";
/// Deletes and evictions of pods, which Podward holds.
const ENDS: [(&str, &str); 2] = [("DELETE", "pods"), ("CREATE", "pods/eviction")];

pub(super) async fn check(site: &Site) -> Result<Vec<Finding>> {
    let definitions: Api<CustomResourceDefinition> = Api::all(site.client.clone());
    // Names are enough: schemas of hundreds of definitions are megabytes.
    let definitions = definitions.list_metadata(&ListParams::default()).await;
    let definitions = definitions.context("list resource definitions")?.items;
    let definitions: Vec<String> = definitions.iter().map(ResourceExt::name_any).collect();
    let found = hooks::list(&site.client).await?;
    let (ours, others): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|found| site.manifests.webhooks.iter().any(|ours| ours.name == found.name));
    drop(ours);
    Ok(judge(&definitions, &others))
}

/// `others` are all webhooks but those of this installation.
fn judge(definitions: &[String], others: &[Configuration]) -> Vec<Finding> {
    let mut findings: Vec<_> = [podward(others), kuperator(definitions, others), kruise(definitions, others)]
        .into_iter()
        .flatten()
        .collect();
    findings.extend(strict_neighbours(others));
    if findings.is_empty() {
        findings.push(Finding::ok("nobody else acts on the pods that Podward looks after"));
    }
    findings
}

fn podward(others: &[Configuration]) -> Option<Finding> {
    let another = others.iter().find(|found| found.hooks.iter().any(|hook| hook.name.ends_with(OURS)))?;
    Some(Finding::failed(
        format!("another Podward: webhook configuration {} leads to {}", another.name, places(another)),
        "both would take steps for the same pods; helm uninstall the one that is not wanted, or delete what is left of it",
    ))
}

fn kuperator(definitions: &[String], others: &[Configuration]) -> Option<Finding> {
    let configurations: Vec<&str> =
        others.iter().filter(|found| belongs_to(found, KUPERATOR)).map(|found| found.name.as_str()).collect();
    let ours: Vec<String> = podward_api::crds().iter().map(ResourceExt::name_any).collect();
    let is_its = |name: &&String| name.ends_with(KUPERATOR_GROUP) && !ours.contains(name);
    let definitions = definitions.iter().filter(is_its).count();
    if !configurations.is_empty() {
        return Some(Finding::warning(
            format!(
                "KusionStack's kuperator is installed (webhook configurations {}): it writes the same labels, readiness gate and \
                 deletion hold on pods with kusionstack.io/control=true",
                configurations.join(", ")
            ),
            "let one of the two look after a pod: turn off kuperator's PodOpsLifecycle and grace delete, or uninstall it; \
             PodTransitionRules would be followed by both, and its workloads (CollaSet) are not Podward's",
        ));
    }
    (definitions > 0).then(|| {
        Finding::note(format!(
            "{definitions} resource definitions of KusionStack's kuperator are there, but none of its webhooks: nothing conflicts"
        ))
    })
}

fn kruise(definitions: &[String], others: &[Configuration]) -> Option<Finding> {
    let defined = definitions.iter().any(|name| KRUISE_GROUPS.iter().any(|group| name.ends_with(group)));
    let is_there = defined || others.iter().any(|found| belongs_to(found, KRUISE));
    is_there.then(|| Finding::note("OpenKruise is installed: it works together with Podward"))
}

/// By its name, or that of the Service that it leads to.
fn belongs_to(configuration: &Configuration, word: &str) -> bool {
    let of_service = |hook: &Hook| hook.service.as_ref().is_some_and(|(_, name)| is_of(name, word));
    is_of(&configuration.name, word) || configuration.hooks.iter().any(of_service)
}

fn is_of(name: &str, word: &str) -> bool {
    name.split(['-', '.']).any(|part| part == word)
}

/// Webhooks of anybody else that stop deletes or evictions of pods while they are away.
fn strict_neighbours(others: &[Configuration]) -> Vec<Finding> {
    let known = |found: &&Configuration| {
        !belongs_to(found, KUPERATOR) && !found.hooks.iter().any(|hook| hook.name.ends_with(OURS))
    };
    let is_strict = |hook: &&Hook| {
        hook.fails_closed && ENDS.iter().any(|(operation, resource)| hook.is_about(operation, resource))
    };
    let of_one = |found: &Configuration| {
        let strict: Vec<&str> = found.hooks.iter().filter(is_strict).map(|hook| hook.name.as_str()).collect();
        (!strict.is_empty()).then(|| {
            Finding::note(format!(
                "deletes or evictions of pods also ask {} (of {}), and are refused while it doesn't answer",
                strict.join(", "),
                found.name
            ))
        })
    };
    others.iter().filter(known).filter_map(of_one).collect()
}

fn places(found: &Configuration) -> String {
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

    use super::super::finding::Level;
    use super::*;

    fn configuration(
        name: &str,
        hook: &str,
        operation: &str,
        resource: &str,
        fails_closed: bool,
    ) -> Configuration {
        let list = |text: &str| Some(vec![text.to_owned()]);
        let rule = RuleWithOperations {
            api_groups: list(""),
            operations: list(operation),
            resources: list(resource),
            ..RuleWithOperations::default()
        };
        let service = Some(("there".to_owned(), "server".to_owned()));
        let hook =
            Hook { name: hook.to_owned(), service, fails_closed, rules: vec![rule], ..Hook::default() };
        Configuration { name: name.to_owned(), hooks: vec![hook], ..Configuration::default() }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn alone_is_well() {
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
        assert!(findings.len() == 1 && findings[0].level == Level::Ok, "{findings:?}");
    }

    #[test]
    fn kuperator_is_a_conflict_only_while_it_acts() {
        let definitions = names(&["collasets.apps.kusionstack.io", "podtransitionrules.apps.kusionstack.io"]);
        let left = judge(&definitions, &[]);
        assert!(left.len() == 1 && left[0].level == Level::Note, "{left:?}");
        let webhooks = configuration(
            "kusionstack-controller-manager-mutating",
            "mutating-pod.x",
            "DELETE",
            "pods",
            true,
        );
        let found = judge(&definitions, &[webhooks]);
        assert!(found.len() == 1 && found[0].level == Level::Warning, "{found:?}");
        assert!(found[0].what.contains("kusionstack-controller-manager-mutating"));
    }

    #[test]
    fn open_kruise_is_a_note() {
        let found = judge(&names(&["clonesets.apps.kruise.io"]), &[]);
        assert!(found[0].level == Level::Note && found[0].what.contains("OpenKruise"), "{found:?}");
        let webhooks =
            configuration("kruise-validating-webhook-configuration", "vpod.kb.io", "CREATE", "pods", true);
        assert_eq!(judge(&[], &[webhooks])[0].level, Level::Note);
    }

    #[test]
    fn another_podward_is_a_failure() {
        let another = configuration("podward-old", "delete.validating.podward.io", "DELETE", "pods", true);
        let found = judge(&[], &[another]);
        assert!(found.len() == 1 && found[0].level == Level::Failed, "{found:?}");
        assert!(found[0].what.contains("podward-old leads to Service there/server"), "{found:?}");
    }

    #[test]
    fn others_that_stop_deletes_are_named() {
        for (operation, resource) in [
            ("DELETE", "pods"),
            ("*", "*"),
            ("CREATE", "pods/eviction"),
            ("CREATE", "*/*"),
            ("DELETE", "pods/*"),
        ] {
            let found = judge(&[], &[configuration("policy", "all.example", operation, resource, true)]);
            assert!(
                found[0].level == Level::Note && found[0].what.contains("all.example (of policy)"),
                "{operation} {resource}: {found:?}"
            );
        }
    }
}
