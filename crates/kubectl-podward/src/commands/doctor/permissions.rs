//! Checks that each service has the permissions of its roles, by access reviews of the API server.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::PostParams;
use kube::{Api, ResourceExt};

use super::bindings::BRIDGE;
use super::configurations::{self, WebhookConfiguration};
use super::finding::Finding;
use super::manifests::{ExpectedManifests, GrantScope, RoleGrant};
use super::target::DoctorTarget;

/// The maximum number of concurrent access reviews. More would only load the API server.
const MAX_CONCURRENT_REVIEWS: usize = 16;
/// The annotation on configurations whose caBundle cert-manager writes.
const CERT_MANAGER: &str = "cert-manager.io/inject-ca-from";
/// The suffix of roles that Podward needs to issue certificates. They do not exist with cert-manager.
const CERTIFICATES: &str = "lifecycle-controller-certificates";

/// What services that are not installed by default may do only with some values of the chart, which the doctor does not
/// know: the account, the verb, the group and the resource; "*" is any. The bridge's hooks of OpenKruise's workloads
/// (`kruise`) and its Secrets of ClusterRegistries (`secrets`), and whether the cloneset-controller looks for OpenKruise
/// (`cloneset.enabled`).
const ONLY_WITH_VALUES: [(&str, &str, &str, &str); 4] = [
    (BRIDGE, "patch", "", "pods"),
    (BRIDGE, "*", "apps.kruise.io", "*"),
    (BRIDGE, "get", "", "secrets"),
    ("cloneset-controller", "*", "apiextensions.k8s.io", "customresourcedefinitions"),
];

/// A permission that a service needs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NeededPermission {
    account: String,
    role: String,
    verb: String,
    group: String,
    /// The resource, with a subresource after a slash.
    resource: String,
    name: Option<String>,
    scope: GrantScope,
}

pub(super) async fn check(target: &DoctorTarget) -> Result<Vec<Finding>> {
    let found = configurations::list(&target.client).await?;
    let deployments = target.deployments().await?;
    let running: Vec<String> = deployments.iter().map(ResourceExt::name_any).collect();
    let needs = needs(&target.manifests, &running, is_by_cert_manager(&target.manifests.webhooks, &found));
    let reviews: Api<SubjectAccessReview> = Api::all(target.client.clone());
    let answers = stream::iter(needs).map(|need| {
        let (reviews, review) = (&reviews, review(&need, &target.namespace));
        async move {
            let answer = reviews.create(&PostParams::default(), &review).await;
            let answer = answer.with_context(|| {
                format!("review whether {} may {} {}", need.account, need.verb, need.resource)
            })?;
            let allowed = answer.status.is_some_and(|status| status.allowed);
            anyhow::Ok((need, allowed))
        }
    });
    let answers: Vec<_> = answers.buffered(MAX_CONCURRENT_REVIEWS).try_collect().await?;
    Ok(judge(&answers, &target.namespace))
}

fn is_by_cert_manager(expected: &[WebhookConfiguration], found: &[WebhookConfiguration]) -> bool {
    let ours = found.iter().filter(|found| expected.iter().any(|ours| ours.name == found.name));
    ours.into_iter().any(|found| found.annotations.contains_key(CERT_MANAGER))
}

/// Returns the permissions that the running services need.
fn needs(manifests: &ExpectedManifests, running: &[String], cert_manager: bool) -> Vec<NeededPermission> {
    let grants = manifests.grants.iter().filter(|grant| running.contains(&grant.account));
    let grants = grants.filter(|grant| !(cert_manager && grant.role.ends_with(CERTIFICATES)));
    let needs = grants.flat_map(|grant| grant.rules.iter().flat_map(|rule| each(grant, rule)));
    needs.filter(|need| !ONLY_WITH_VALUES.iter().any(|only| is_need(*only, need))).collect()
}

/// Returns whether a permission is one of [`ONLY_WITH_VALUES`].
fn is_need((account, verb, group, resource): (&str, &str, &str, &str), need: &NeededPermission) -> bool {
    let is = |pattern: &str, word: &str| pattern == "*" || pattern == word;
    account == need.account && is(verb, &need.verb) && group == need.group && is(resource, &need.resource)
}

/// Returns the permissions of a rule.
fn each(grant: &RoleGrant, rule: &PolicyRule) -> Vec<NeededPermission> {
    let mut needs = Vec::new();
    let names = match rule.resource_names.as_deref().unwrap_or_default() {
        [] => vec![None],
        names => names.iter().cloned().map(Some).collect(),
    };
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for (verb, name) in rule.verbs.iter().flat_map(|verb| names.iter().map(move |name| (verb, name)))
            {
                needs.push(NeededPermission {
                    account: grant.account.clone(),
                    role: grant.role.clone(),
                    verb: verb.clone(),
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                    scope: grant.scope.clone(),
                });
            }
        }
    }
    needs
}

fn review(need: &NeededPermission, namespace: &str) -> SubjectAccessReview {
    let (resource, subresource) = match need.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (need.resource.as_str(), None),
    };
    let attributes = ResourceAttributes {
        group: Some(need.group.clone()),
        resource: Some(resource.to_owned()),
        subresource,
        verb: Some(need.verb.clone()),
        name: need.name.clone(),
        namespace: need.scope.namespace(namespace).map(str::to_owned),
        ..ResourceAttributes::default()
    };
    // The groups of a service account that authenticates by its token.
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{}", need.account)),
            groups: Some(groups.to_vec()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

fn judge(answers: &[(NeededPermission, bool)], namespace: &str) -> Vec<Finding> {
    let mut accounts: BTreeMap<&str, Vec<&(NeededPermission, bool)>> = BTreeMap::new();
    for answer in answers {
        accounts.entry(&answer.0.account).or_default().push(answer);
    }
    let mut findings = Vec::new();
    for (account, answers) in accounts {
        let denied = answers.iter().filter(|(_, allowed)| !allowed).map(|(need, _)| need);
        // One finding covers all verbs of a resource.
        let mut verbs: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
        for need in denied {
            verbs.entry((&need.role, what(need, namespace))).or_default().push(&need.verb);
        }
        if verbs.is_empty() {
            findings.push(Finding::ok(format!(
                "{account} has all permissions that it needs ({})",
                answers.len()
            )));
        }
        findings.extend(verbs.into_iter().map(|((role, what), verbs)| {
            Finding::failed(
                format!("{account} may not {} {what}", verbs.join(", ")),
                format!("run helm upgrade to restore {role} and its binding"),
            )
        }));
    }
    findings
}

/// Returns the object of a permission, such as: leases.coordination.k8s.io "x" in namespace y.
fn what(need: &NeededPermission, namespace: &str) -> String {
    let resource = match (need.group.as_str(), need.resource.split_once('/')) {
        ("", _) => need.resource.clone(),
        (group, None) => format!("{}.{group}", need.resource),
        (group, Some((resource, subresource))) => format!("{resource}.{group}/{subresource}"),
    };
    let name = need.name.as_ref().map(|name| format!(" \"{name}\"")).unwrap_or_default();
    let place = need.scope.namespace(namespace);
    let place = place.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
    format!("{resource}{name}{place}")
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingLevel;
    use super::*;

    fn all(cert_manager: bool) -> Vec<NeededPermission> {
        let manifests = ExpectedManifests::read().unwrap();
        let running: Vec<String> = manifests.services.iter().cloned().collect();
        needs(&manifests, &running, cert_manager)
    }

    #[test]
    fn every_rule_of_the_manifests_is_reviewed() {
        let needs = all(false);
        let find = |account: &str, verb: &str, resource: &str| {
            needs
                .iter()
                .find(|need| (&*need.account, &*need.verb, &*need.resource) == (account, verb, resource))
        };
        let slices = find("traffic-controller", "watch", "endpointslices").unwrap();
        assert_eq!((slices.group.as_str(), &slices.scope), ("discovery.k8s.io", &GrantScope::Cluster));
        let lease = find("lifecycle-controller", "patch", "leases").unwrap();
        assert_eq!(
            (lease.name.as_deref(), &lease.scope),
            (Some("lifecycle-controller"), &GrantScope::Podward)
        );
        assert_eq!(find("lifecycle-controller", "create", "leases").unwrap().name, None);
        assert!(find("validating-webhook", "delete", "pods").is_none());
        // There are no rules that reviews cannot express.
        let manifests = ExpectedManifests::read().unwrap();
        for rule in manifests.grants.iter().flat_map(|grant| &grant.rules) {
            assert!(
                rule.non_resource_urls.is_none() && !rule.verbs.iter().any(|verb| verb == "*"),
                "{rule:?}"
            );
        }
    }

    #[test]
    fn a_role_in_another_namespace_is_reviewed_there() {
        let needs = all(false);
        let addresses = needs.iter().find(|need| need.name.as_deref() == Some("kubernetes")).unwrap();
        let attributes = review(addresses, "ours").spec.resource_attributes.unwrap();
        assert_eq!(attributes.namespace.as_deref(), Some("default"));
        assert!(what(addresses, "ours").ends_with("\"kubernetes\" in namespace default"));
    }

    #[test]
    fn services_that_are_not_installed_need_nothing() {
        let manifests = ExpectedManifests::read().unwrap();
        assert!(
            needs(&manifests, &["mutating-webhook".to_owned()], false)
                .iter()
                .all(|need| need.account == "mutating-webhook")
        );
        let (with, without) = (all(false), all(true));
        let named = |needs: &[NeededPermission], name: &str| {
            needs.iter().filter(|need| need.name.as_deref() == Some(name)).count()
        };
        assert!(named(&with, "podward-ca") > 0);
        assert_eq!(named(&without, "podward-ca"), 0);
        // The paths of the webhooks are written with any issuer.
        assert!(named(&without, "podward-webhook-path") > 0 && named(&without, "podward-mutating") > 0);
    }

    #[test]
    fn services_that_are_not_installed_by_default_are_reviewed_where_they_run() {
        let manifests = ExpectedManifests::read().unwrap();
        let running = ["cloneset-controller", BRIDGE].map(str::to_owned);
        let needs = needs(&manifests, &running, false);
        let has = |account: &str, verb: &str, resource: &str| {
            needs
                .iter()
                .any(|need| (&*need.account, &*need.verb, &*need.resource) == (account, verb, resource))
        };
        assert!(
            has("cloneset-controller", "create", "pods") && has("cloneset-controller", "patch", "leases")
        );
        assert!(has(BRIDGE, "watch", "pods") && has(BRIDGE, "patch", "discoverybindings/status"));
        // Other values of the chart grant less.
        assert!(!has(BRIDGE, "patch", "pods") && !has(BRIDGE, "get", "secrets"));
        assert!(!has(BRIDGE, "list", "clonesets"));
        assert!(!has("cloneset-controller", "list", "customresourcedefinitions"));
    }

    #[test]
    fn what_depends_on_values_is_in_the_manifests() {
        let manifests = ExpectedManifests::read().unwrap();
        let all: Vec<NeededPermission> = manifests
            .grants
            .iter()
            .flat_map(|grant| grant.rules.iter().flat_map(|rule| each(grant, rule)))
            .collect();
        for only in ONLY_WITH_VALUES {
            assert!(all.iter().any(|need| is_need(only, need)), "{only:?}");
        }
        // The cloneset-controller that is always responsible for CloneSets may do all that is reviewed.
        let settings = include_str!("../../../../../tests/charts/cases/settings/rendered.yaml");
        let settings = ExpectedManifests::parse(settings, &[]).unwrap();
        let granted = needs(&settings, &["cloneset-controller".to_owned()], false);
        let of_cluster = |need: &&NeededPermission| need.scope == GrantScope::Cluster;
        let reviewed = needs(&manifests, &["cloneset-controller".to_owned()], false);
        for need in reviewed.iter().filter(of_cluster) {
            assert!(granted.contains(need), "{need:?}");
        }
    }

    #[test]
    fn reviews_have_the_attributes_of_real_requests() {
        let needs = all(false);
        let status = needs.iter().find(|need| need.resource == "pods/status").unwrap();
        let spec = review(status, "ours").spec;
        assert_eq!(spec.user.as_deref(), Some("system:serviceaccount:ours:lifecycle-controller"));
        assert!(spec.groups.unwrap().contains(&"system:serviceaccounts:ours".to_owned()));
        let attributes = spec.resource_attributes.unwrap();
        assert_eq!(
            (attributes.resource.as_deref(), attributes.subresource.as_deref()),
            (Some("pods"), Some("status"))
        );
        assert_eq!(attributes.namespace, None);
    }

    #[test]
    fn missing_permissions_are_named() {
        let mut answers: Vec<(NeededPermission, bool)> =
            all(false).into_iter().map(|need| (need, true)).collect();
        let fine = judge(&answers, "ours");
        assert!(fine.len() == 4 && fine.iter().all(|finding| finding.level == FindingLevel::Ok), "{fine:?}");
        for (need, allowed) in &mut answers {
            *allowed = need.account != "traffic-controller" || need.resource != "endpointslices";
        }
        let findings = judge(&answers, "ours");
        let failed: Vec<_> =
            findings.iter().filter(|finding| finding.level == FindingLevel::Failed).collect();
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert_eq!(failed[0].what, "traffic-controller may not list, watch endpointslices.discovery.k8s.io");
        assert!(failed[0].next.as_ref().unwrap().contains("ClusterRole podward-traffic-controller"));
        let lease =
            answers.iter().find(|(need, _)| need.resource == "leases" && need.name.is_some()).unwrap();
        assert_eq!(
            what(&lease.0, "ours"),
            "leases.coordination.k8s.io \"lifecycle-controller\" in namespace ours"
        );
    }

    #[test]
    fn cert_manager_is_recognised_by_its_annotation() {
        let expected = ExpectedManifests::read().unwrap().webhooks;
        let mut found = expected.clone();
        assert!(!is_by_cert_manager(&expected, &found));
        found[1].annotations.insert(CERT_MANAGER.to_owned(), "ours/x".to_owned());
        assert!(is_by_cert_manager(&expected, &found));
    }
}
