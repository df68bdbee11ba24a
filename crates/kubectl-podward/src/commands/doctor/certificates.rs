//! Checks that certificates are valid, not about to expire, and signed by the authorities that verify them.

mod chain;
mod serving;
mod trust;
mod validity;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};

use self::serving::{ServingCertificate, secret_of};
use self::trust::NODE_AGENT;
use self::validity::judge_validity;
use super::bindings::BRIDGE;
use super::configurations::{self, WebhookConfiguration};
use super::finding::{Finding, is_denied};
use super::services::OPTIONAL;
use super::target::{DoctorTarget, has_argument};

pub(super) async fn check(target: &DoctorTarget) -> Result<Vec<Finding>> {
    let found = configurations::list(&target.client).await?;
    let bundles = bundles(&target.manifests.webhooks, &found);
    let now = Timestamp::now();
    let mut findings = Vec::new();
    for (bundle, users) in &bundles {
        findings.extend(authorities(bundle, &users.join(" and "), now));
    }
    let deployments = target.deployments().await?;
    let mut served = Vec::new();
    for name in services(target, &deployments) {
        let serving = read_serving(target, &name).await?;
        served.push((name, serving));
    }
    let bundles: Vec<&[u8]> = bundles.keys().map(Vec::as_slice).collect();
    findings.extend(judge_serving(&served, &bundles, &target.namespace, now));
    findings.extend(trust::judge(&served, &target.namespace, now));
    Ok(findings)
}

/// Returns the services that have a certificate. Secrets of others can exist, too, but perhaps nobody uses and renews
/// them.
fn services(target: &DoctorTarget, deployments: &[Deployment]) -> Vec<String> {
    let running = |name: &str| deployments.iter().find(|found| found.name_any() == name);
    let expected =
        target.manifests.services.iter().filter(|name| *name != OPTIONAL || running(name).is_some());
    let mut services: Vec<_> = expected.cloned().collect();
    services.extend(running(BRIDGE).map(|_| BRIDGE.to_owned()));
    // The node-agent is a DaemonSet. The doctor of `helm test` may not list those.
    let calls_node_agents =
        |found: &&Deployment| has_argument(found, |argument| argument.starts_with("--node-agent-url"));
    services.extend(running(OPTIONAL).filter(calls_node_agents).map(|_| NODE_AGENT.to_owned()));
    services
}

/// Returns the caBundles, each with the names of the configurations that contain it.
fn bundles(
    expected: &[WebhookConfiguration],
    found: &[WebhookConfiguration],
) -> BTreeMap<Vec<u8>, Vec<String>> {
    let mut bundles: BTreeMap<Vec<u8>, Vec<String>> = BTreeMap::new();
    for found in found.iter().filter(|found| expected.iter().any(|ours| ours.name == found.name)) {
        for hook in found.hooks.iter().filter(|hook| !hook.bundle.is_empty()) {
            let users = bundles.entry(hook.bundle.clone()).or_default();
            if !users.contains(&found.name) {
                users.push(found.name.clone());
            }
        }
    }
    bundles
}

/// Checks the certificates of a caBundle. It contains several during the rotation of the authority; one valid
/// certificate is enough.
fn authorities(bundle: &[u8], users: &str, now: Timestamp) -> Vec<Finding> {
    let what = format!("the authority of {users}");
    let certificates = match chain::read(bundle) {
        Ok(certificates) if !certificates.is_empty() => certificates,
        Ok(_) => {
            return vec![Finding::failed(
                format!("the caBundle of {users} contains no certificate"),
                REWRITE,
            )];
        }
        Err(error) => return vec![Finding::failed(format!("the caBundle of {users}: {error}"), REWRITE)],
    };
    let findings: Vec<_> = certificates.iter().map(|der| judge_validity(der, &what, now)).collect();
    match findings.iter().map(|finding| finding.level).min() {
        // The best certificate decides. An older one is about to be removed.
        Some(best) => findings.into_iter().filter(|finding| finding.level == best).take(1).collect(),
        None => findings,
    }
}

const REWRITE: &str = "the lifecycle-controller, or cert-manager's cainjector, writes the caBundle; its log says why \
                       it does not";

/// Returns the serving certificate of `service`.
///
/// # Errors
/// When its Secret cannot be read for another reason than missing permission.
async fn read_serving(target: &DoctorTarget, service: &str) -> Result<ServingCertificate> {
    let secrets: Api<Secret> = Api::namespaced(target.client.clone(), &target.namespace);
    let name = secret_of(service);
    match secrets.get_opt(&name).await {
        Ok(Some(secret)) => {
            let mut data = secret.data.unwrap_or_default();
            let mut take = |key: &str| data.remove(key).map(|bytes| bytes.0);
            let (certificate, authorities) = (take("tls.crt"), take("ca.crt").unwrap_or_default());
            Ok(certificate
                .map_or(ServingCertificate::Missing, |pem| ServingCertificate::Found(pem, authorities)))
        }
        Ok(None) => Ok(ServingCertificate::Missing),
        Err(error) if is_denied(Some(&error)) => Ok(ServingCertificate::Denied),
        Err(error) => Err(error).with_context(|| format!("read the Secret {name}")),
    }
}

fn judge_serving(
    served: &[(String, ServingCertificate)],
    bundles: &[&[u8]],
    namespace: &str,
    now: Timestamp,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut denied = Vec::new();
    for (service, serving) in served {
        let secret = secret_of(service);
        match serving {
            ServingCertificate::Denied => denied.push(secret),
            ServingCertificate::Missing => findings.push(Finding::failed(
                format!("there is no certificate in Secret {secret}: {service} cannot serve TLS"),
                "the log of the lifecycle-controller, or of cert-manager, says why it issues none",
            )),
            ServingCertificate::Found(pem, _) => {
                findings.push(judge_one(service, pem, bundles, namespace, now))
            }
        }
    }
    if !denied.is_empty() {
        findings.push(Finding::skipped(format!(
            "serving certificates: not allowed to read {}; a webhook that answers above has a valid certificate",
            denied.join(", ")
        )));
    }
    findings
}

fn judge_one(service: &str, pem: &[u8], bundles: &[&[u8]], namespace: &str, now: Timestamp) -> Finding {
    let secret = secret_of(service);
    let what = format!("the certificate of {service}");
    let anew = format!("kubectl -n {namespace} delete secret {secret}: a new one is issued");
    let chain = match chain::read(pem) {
        Ok(chain) => chain,
        Err(error) => return Finding::failed(format!("{what}: {error}"), anew),
    };
    let Some((leaf, intermediates)) = chain.split_first() else {
        return Finding::failed(format!("{what}: the Secret {secret} contains no certificate"), anew);
    };
    let name = format!("{service}.{namespace}.svc");
    match chain::verify(leaf, intermediates, bundles, &name, now) {
        Ok(()) => judge_validity(leaf, &what, now),
        Err(problem) => Finding::failed(format!("{what} {problem}"), anew),
    }
}

#[cfg(test)]
mod tests {
    use podward_support::api_answers::json_answer;
    use serde_json::{Value, json};

    use super::super::configurations::Webhook;
    use super::super::finding::FindingLevel;
    use super::super::manifests::ExpectedManifests;
    use super::chain::tests::{Authority, at, day};
    use super::*;
    use crate::api_server;

    const NAME: &str = "web.ours.svc";

    /// Returns the services whose certificates are checked where these Deployments exist.
    async fn checked(deployments: Value) -> Vec<String> {
        let client = api_server::client(move |request| {
            let path = request.uri().path();
            Some(json_answer(&match path.rsplit('/').next() {
                Some("deployments") => json!({"kind": "List", "metadata": {}, "items": deployments}),
                Some(name) if name.ends_with("-tls") => json!({"data": {"tls.crt": "eA=="}}),
                _ => json!({"kind": "List", "metadata": {}, "items": []}),
            }))
        });
        let target = DoctorTarget {
            client,
            namespace: "ours".to_owned(),
            probe_namespace: "default".to_owned(),
            manifests: ExpectedManifests::read().unwrap(),
        };
        let findings = check(&target).await.unwrap();
        let of = |what: &str| Some(what.strip_prefix("the certificate of ")?.split_once(':')?.0.to_owned());
        findings.iter().filter_map(|found| of(&found.what)).collect()
    }

    #[tokio::test]
    async fn optional_services_are_checked_if_they_are_used() {
        let default = ["lifecycle-controller", "mutating-webhook", "validating-webhook"];
        assert_eq!(checked(json!([])).await, default);
        let deployment = |name: &str, args: &[&str]| {
            let spec = json!({"containers": [{"name": name, "args": args}]});
            json!({"metadata": {"name": name}, "spec": {"selector": {}, "template": {"spec": spec}}})
        };
        let without = checked(json!([deployment("traffic-controller", &[])])).await;
        assert!(without.iter().any(|it| it == "traffic-controller") && without.len() == 4, "{without:?}");
        let agents = deployment("traffic-controller", &["--node-agent-url=https://{node_ip}:9446"]);
        let all = checked(json!([agents, deployment("service-discovery-bridge", &[])])).await;
        assert_eq!(all[4..], ["service-discovery-bridge", "node-agent"]);
    }

    fn judged(certificate: &str, bundle: &[u8], now: Timestamp) -> Finding {
        judge_one("web", certificate.as_bytes(), &[bundle], "ours", now)
    }

    #[test]
    fn a_certificate_must_be_valid_for_its_service() {
        let (authority, other) = (Authority::new(1, 300), Authority::new(1, 300));
        let good = authority.sign(NAME, 1, 90);
        assert_eq!(judged(&good, authority.pem(), at(10)).level, FindingLevel::Ok);
        for (certificate, bundle, now, words) in [
            (good.as_str(), other.pem(), at(10), "was not signed by"),
            (&good, authority.pem(), at(95), "has expired"),
            (&good, authority.pem(), at(0), "is not valid yet"),
            (&authority.sign("other.ours.svc", 1, 90), authority.pem(), at(10), "is not for web.ours.svc"),
            ("rubbish", authority.pem(), at(10), "contains no certificate"),
        ] {
            let found = judged(certificate, bundle, now);
            assert!(found.level == FindingLevel::Failed && found.what.contains(words), "{words}: {found:?}");
            assert!(found.next.unwrap().contains("delete secret web-tls"));
        }
        let late = judged(&good, authority.pem(), at(80));
        assert_eq!(late.level, FindingLevel::Warning, "{late:?}");
    }

    #[test]
    fn one_good_authority_of_a_bundle_is_enough() {
        let (old, new) = (Authority::new(1, 20), Authority::new(15, 300));
        let both = [old.pem(), new.pem()].concat();
        let found = authorities(&both, "podward-mutating", at(25));
        assert!(found.len() == 1 && found[0].level == FindingLevel::Ok, "{found:?}");
        let found = authorities(old.pem(), "podward-mutating", at(25));
        assert!(found[0].level == FindingLevel::Failed && found[0].what.contains("expired"), "{found:?}");
        assert_eq!(authorities(b"rubbish", "podward-mutating", at(25))[0].level, FindingLevel::Failed);
    }

    #[test]
    fn unreadable_secrets_are_skipped_and_missing_ones_fail() {
        let denied = judge_serving(
            &[("a".into(), ServingCertificate::Denied), ("b".into(), ServingCertificate::Denied)],
            &[],
            "ours",
            day(1),
        );
        assert!(denied.len() == 1 && denied[0].level == FindingLevel::Skipped, "{denied:?}");
        assert!(denied[0].what.contains("a-tls, b-tls"), "{denied:?}");
        let missing = judge_serving(&[("a".into(), ServingCertificate::Missing)], &[], "ours", day(1));
        assert_eq!(missing[0].level, FindingLevel::Failed);
    }

    #[test]
    fn a_bundle_is_looked_at_once() {
        let hook = |bundle: &str| Webhook { bundle: bundle.into(), ..Webhook::default() };
        let configuration = |name: &str, hooks| WebhookConfiguration {
            name: name.into(),
            hooks,
            ..WebhookConfiguration::default()
        };
        let ours = [
            configuration("m", vec![hook("1"), hook("1"), hook("")]),
            configuration("v", vec![hook("1"), hook("2")]),
        ];
        let others = configuration("other", vec![hook("3")]);
        let found = bundles(&ours, &[ours[0].clone(), ours[1].clone(), others]);
        let expected =
            [(b"1".to_vec(), vec!["m".to_owned(), "v".to_owned()]), (b"2".to_vec(), vec!["v".to_owned()])];
        assert_eq!(found, expected.into());
    }
}
