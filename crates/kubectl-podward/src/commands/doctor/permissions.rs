//! Whether each service may do what it needs: the API server is asked for every rule of the manifests.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::PostParams;
use kube::{Api, ResourceExt};

use super::finding::Finding;
use super::hooks::{self, Configuration};
use super::manifests::{Grant, Manifests};
use super::site::Site;

/// Questions at a time: a hundred at once would be a burden to no purpose.
const AT_A_TIME: usize = 16;
/// What cert-manager's users put on what it writes its authority into.
const CERT_MANAGER: &str = "cert-manager.io/inject-ca-from";
/// Roles by which Podward makes its certificates: not there when cert-manager does.
const CERTIFICATES: &str = "lifecycle-controller-certificates";

/// Something that a service needs to do.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Need {
    account: String,
    role: String,
    verb: String,
    group: String,
    /// With a slash before the subresource, as in roles.
    resource: String,
    name: Option<String>,
    /// Whether in Podward's namespace alone.
    namespaced: bool,
}

pub(super) async fn check(site: &Site) -> Result<Vec<Finding>> {
    let found = hooks::list(&site.client).await?;
    let deployments = site.deployments().await?;
    let running: Vec<String> = deployments.iter().map(ResourceExt::name_any).collect();
    let needs = needs(&site.manifests, &running, is_by_cert_manager(&site.manifests.webhooks, &found));
    let reviews: Api<SubjectAccessReview> = Api::all(site.client.clone());
    let asked = stream::iter(needs).map(|need| {
        let (reviews, review) = (&reviews, review(&need, &site.namespace));
        async move {
            let answer = reviews.create(&PostParams::default(), &review).await;
            let answer = answer.with_context(|| {
                format!("ask whether {} may {} {}", need.account, need.verb, need.resource)
            })?;
            let allowed = answer.status.is_some_and(|status| status.allowed);
            anyhow::Ok((need, allowed))
        }
    });
    let answers: Vec<_> = asked.buffered(AT_A_TIME).try_collect().await?;
    Ok(judge(&answers, &site.namespace))
}

fn is_by_cert_manager(expected: &[Configuration], found: &[Configuration]) -> bool {
    let ours = found.iter().filter(|found| expected.iter().any(|ours| ours.name == found.name));
    ours.into_iter().any(|found| found.annotations.contains_key(CERT_MANAGER))
}

/// All that the running services need.
fn needs(manifests: &Manifests, running: &[String], cert_manager: bool) -> Vec<Need> {
    let grants = manifests.grants.iter().filter(|grant| running.contains(&grant.account));
    let grants = grants.filter(|grant| !(cert_manager && grant.role.ends_with(CERTIFICATES)));
    grants.flat_map(|grant| grant.rules.iter().flat_map(|rule| each(grant, rule))).collect()
}

/// A rule, taken apart.
fn each(grant: &Grant, rule: &PolicyRule) -> Vec<Need> {
    let mut needs = Vec::new();
    let names = match rule.resource_names.as_deref().unwrap_or_default() {
        [] => vec![None],
        names => names.iter().cloned().map(Some).collect(),
    };
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for (verb, name) in rule.verbs.iter().flat_map(|verb| names.iter().map(move |name| (verb, name)))
            {
                needs.push(Need {
                    account: grant.account.clone(),
                    role: grant.role.clone(),
                    verb: verb.clone(),
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                    namespaced: grant.namespaced,
                });
            }
        }
    }
    needs
}

fn review(need: &Need, namespace: &str) -> SubjectAccessReview {
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
        namespace: need.namespaced.then(|| namespace.to_owned()),
        ..ResourceAttributes::default()
    };
    // As the API server sees an account that shows its token.
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

fn judge(answers: &[(Need, bool)], namespace: &str) -> Vec<Finding> {
    let mut accounts: BTreeMap<&str, Vec<&(Need, bool)>> = BTreeMap::new();
    for answer in answers {
        accounts.entry(&answer.0.account).or_default().push(answer);
    }
    let mut findings = Vec::new();
    for (account, answers) in accounts {
        let denied = answers.iter().filter(|(_, allowed)| !allowed).map(|(need, _)| need);
        // One finding for all verbs of a resource.
        let mut verbs: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
        for need in denied {
            verbs.entry((&need.role, what(need, namespace))).or_default().push(&need.verb);
        }
        if verbs.is_empty() {
            findings
                .push(Finding::ok(format!("{account} may do all that it needs ({} rights)", answers.len())));
        }
        findings.extend(verbs.into_iter().map(|((role, what), verbs)| {
            Finding::failed(
                format!("{account} may not {} {what}", verbs.join(", ")),
                format!("helm upgrade restores {role} and its binding; something may have changed or not allowed them"),
            )
        }));
    }
    findings
}

/// On what a right is, as in: leases.coordination.k8s.io "x" in namespace y.
fn what(need: &Need, namespace: &str) -> String {
    let resource = match (need.group.as_str(), need.resource.split_once('/')) {
        ("", _) => need.resource.clone(),
        (group, None) => format!("{}.{group}", need.resource),
        (group, Some((resource, subresource))) => format!("{resource}.{group}/{subresource}"),
    };
    let name = need.name.as_ref().map(|name| format!(" \"{name}\"")).unwrap_or_default();
    let place = if need.namespaced { format!(" in namespace {namespace}") } else { String::new() };
    format!("{resource}{name}{place}")
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn all(cert_manager: bool) -> Vec<Need> {
        let manifests = Manifests::read().unwrap();
        let running: Vec<String> = manifests.services.iter().cloned().collect();
        needs(&manifests, &running, cert_manager)
    }

    #[test]
    fn every_rule_of_the_manifests_is_asked_about() {
        let needs = all(false);
        let find = |account: &str, verb: &str, resource: &str| {
            needs
                .iter()
                .find(|need| (&*need.account, &*need.verb, &*need.resource) == (account, verb, resource))
        };
        let slices = find("traffic-controller", "watch", "endpointslices").unwrap();
        assert_eq!((slices.group.as_str(), slices.namespaced), ("discovery.k8s.io", false));
        let lease = find("lifecycle-controller", "patch", "leases").unwrap();
        assert_eq!((lease.name.as_deref(), lease.namespaced), (Some("lifecycle-controller"), true));
        assert_eq!(find("lifecycle-controller", "create", "leases").unwrap().name, None);
        assert!(find("validating-webhook", "delete", "pods").is_none());
        // Nothing that the reviews can't ask about.
        let manifests = Manifests::read().unwrap();
        for rule in manifests.grants.iter().flat_map(|grant| &grant.rules) {
            assert!(
                rule.non_resource_urls.is_none() && !rule.verbs.iter().any(|verb| verb == "*"),
                "{rule:?}"
            );
        }
    }

    #[test]
    fn what_isnt_installed_needs_nothing() {
        let manifests = Manifests::read().unwrap();
        assert!(
            needs(&manifests, &["mutating-webhook".to_owned()], false)
                .iter()
                .all(|need| need.account == "mutating-webhook")
        );
        let (with, without) = (all(false), all(true));
        let writes_authority = |need: &&Need| need.resource.ends_with("webhookconfigurations");
        assert!(with.iter().filter(writes_authority).count() > 0);
        assert_eq!(without.iter().filter(writes_authority).count(), 0);
    }

    #[test]
    fn reviews_ask_as_the_api_server_does() {
        let needs = all(false);
        let status = needs.iter().find(|need| need.resource == "pods/status").unwrap();
        let asked = review(status, "ours").spec;
        assert_eq!(asked.user.as_deref(), Some("system:serviceaccount:ours:lifecycle-controller"));
        assert!(asked.groups.unwrap().contains(&"system:serviceaccounts:ours".to_owned()));
        let attributes = asked.resource_attributes.unwrap();
        assert_eq!(
            (attributes.resource.as_deref(), attributes.subresource.as_deref()),
            (Some("pods"), Some("status"))
        );
        assert_eq!(attributes.namespace, None);
    }

    #[test]
    fn missing_rights_are_named() {
        let mut answers: Vec<(Need, bool)> = all(false).into_iter().map(|need| (need, true)).collect();
        let fine = judge(&answers, "ours");
        assert!(fine.len() == 4 && fine.iter().all(|finding| finding.level == Level::Ok), "{fine:?}");
        for (need, allowed) in &mut answers {
            *allowed = need.account != "traffic-controller" || need.resource != "endpointslices";
        }
        let findings = judge(&answers, "ours");
        let failed: Vec<_> = findings.iter().filter(|finding| finding.level == Level::Failed).collect();
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
    fn cert_manager_is_known_by_its_mark() {
        let expected = Manifests::read().unwrap().webhooks;
        let mut found = expected.clone();
        assert!(!is_by_cert_manager(&expected, &found));
        found[1].annotations.insert(CERT_MANAGER.to_owned(), "ours/x".to_owned());
        assert!(is_by_cert_manager(&expected, &found));
    }
}
