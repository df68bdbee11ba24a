//! Whether certificates are good, now and for some time, and belong together.

mod chain;
mod trust;
mod validity;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};

use self::validity::judge_validity;
use super::finding::{Finding, is_denied};
use super::hooks::{self, Configuration};
use super::services::OPTIONAL;
use super::site::Site;

/// What is known of a service's certificate.
#[derive(Debug)]
enum Serving {
    /// The PEM text that it serves with, and that of the authorities by which it checks others (empty: none).
    Found(Vec<u8>, Vec<u8>),
    /// There is no Secret with one.
    Missing,
    /// The doctor may not see it.
    Denied,
}

pub(super) async fn check(site: &Site) -> Result<Vec<Finding>> {
    let found = hooks::list(&site.client).await?;
    let bundles = bundles(&site.manifests.webhooks, &found);
    let now = Timestamp::now();
    let mut findings = Vec::new();
    for (bundle, users) in &bundles {
        findings.extend(authorities(bundle, &users.join(" and "), now));
    }
    let deployments = site.deployments().await?;
    let mut served = Vec::new();
    for name in &site.manifests.services {
        let runs = deployments.iter().any(|found| found.name_any() == *name);
        if runs || name != OPTIONAL {
            served.push((name.clone(), serving(site, name).await?));
        }
    }
    let bundles: Vec<&[u8]> = bundles.keys().map(Vec::as_slice).collect();
    findings.extend(judge_serving(&served, &bundles, &site.namespace, now));
    findings.extend(trust::judge(&served, &site.namespace, now));
    Ok(findings)
}

/// Each bundle, and the configurations that it is in.
fn bundles(expected: &[Configuration], found: &[Configuration]) -> BTreeMap<Vec<u8>, Vec<String>> {
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

/// Of the certificates in a caBundle. While authorities change there are several, and one that is good is enough.
fn authorities(bundle: &[u8], users: &str, now: Timestamp) -> Vec<Finding> {
    let what = format!("the authority of {users}");
    let certificates = match chain::read(bundle) {
        Ok(certificates) if !certificates.is_empty() => certificates,
        Ok(_) => {
            return vec![Finding::failed(format!("the caBundle of {users} holds no certificate"), REWRITE)];
        }
        Err(error) => return vec![Finding::failed(format!("the caBundle of {users}: {error}"), REWRITE)],
    };
    let findings: Vec<_> = certificates.iter().map(|der| judge_validity(der, &what, now)).collect();
    match findings.iter().map(|finding| finding.level).min() {
        // The best of them decides; an older one is on its way out.
        Some(best) => findings.into_iter().filter(|finding| finding.level == best).take(1).collect(),
        None => findings,
    }
}

const REWRITE: &str = "whoever makes the certificates has to write it: the log of the lifecycle-controller, or of \
                       cert-manager's cainjector, says why it doesn't";

/// The certificate of `service`.
async fn serving(site: &Site, service: &str) -> Result<Serving> {
    let secrets: Api<Secret> = Api::namespaced(site.client.clone(), &site.namespace);
    let name = secret_of(service);
    match secrets.get_opt(&name).await {
        Ok(Some(secret)) => {
            let mut data = secret.data.unwrap_or_default();
            let mut take = |key: &str| data.remove(key).map(|bytes| bytes.0);
            let (certificate, authorities) = (take("tls.crt"), take("ca.crt").unwrap_or_default());
            Ok(certificate.map_or(Serving::Missing, |pem| Serving::Found(pem, authorities)))
        }
        Ok(None) => Ok(Serving::Missing),
        Err(error) if is_denied(Some(&error)) => Ok(Serving::Denied),
        Err(error) => Err(error).with_context(|| format!("read the Secret {name}")),
    }
}

fn secret_of(service: &str) -> String {
    format!("{service}-tls")
}

fn judge_serving(
    served: &[(String, Serving)],
    bundles: &[&[u8]],
    namespace: &str,
    now: Timestamp,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut denied = Vec::new();
    for (service, serving) in served {
        let secret = secret_of(service);
        match serving {
            Serving::Denied => denied.push(secret),
            Serving::Missing => findings.push(Finding::failed(
                format!("there is no certificate in Secret {secret}: {service} can't serve"),
                "the log of the lifecycle-controller, or of cert-manager, says why it makes none",
            )),
            Serving::Found(pem, _) => findings.push(judge_one(service, pem, bundles, namespace, now)),
        }
    }
    if !denied.is_empty() {
        findings.push(Finding::skipped(format!(
            "serving certificates: no right to read {}; that of a webhook is proven good where it answers above",
            denied.join(", ")
        )));
    }
    findings
}

fn judge_one(service: &str, pem: &[u8], bundles: &[&[u8]], namespace: &str, now: Timestamp) -> Finding {
    let secret = secret_of(service);
    let what = format!("the certificate of {service}");
    let anew = format!("kubectl -n {namespace} delete secret {secret}: it is made anew");
    let chain = match chain::read(pem) {
        Ok(chain) => chain,
        Err(error) => return Finding::failed(format!("{what}: {error}"), anew),
    };
    let Some((leaf, intermediates)) = chain.split_first() else {
        return Finding::failed(format!("{what}: the Secret {secret} holds none"), anew);
    };
    let name = format!("{service}.{namespace}.svc");
    match chain::verify(leaf, intermediates, bundles, &name, now) {
        Ok(()) => judge_validity(leaf, &what, now),
        Err(problem) => Finding::failed(format!("{what} {problem}"), anew),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::hooks::Hook;
    use super::chain::tests::{Authority, at, day};
    use super::*;

    const NAME: &str = "web.ours.svc";

    fn judged(certificate: &str, bundle: &[u8], now: Timestamp) -> Finding {
        judge_one("web", certificate.as_bytes(), &[bundle], "ours", now)
    }

    #[test]
    fn a_certificate_has_to_be_good_for_its_service() {
        let (authority, other) = (Authority::new(1, 300), Authority::new(1, 300));
        let good = authority.sign(NAME, 1, 90);
        assert_eq!(judged(&good, authority.pem(), at(10)).level, Level::Ok);
        for (certificate, bundle, now, words) in [
            (good.as_str(), other.pem(), at(10), "was not signed by"),
            (&good, authority.pem(), at(95), "has expired"),
            (&good, authority.pem(), at(0), "is not valid yet"),
            (&authority.sign("other.ours.svc", 1, 90), authority.pem(), at(10), "is not for web.ours.svc"),
            ("rubbish", authority.pem(), at(10), "holds none"),
        ] {
            let found = judged(certificate, bundle, now);
            assert!(found.level == Level::Failed && found.what.contains(words), "{words}: {found:?}");
            assert!(found.next.unwrap().contains("delete secret web-tls"));
        }
        let late = judged(&good, authority.pem(), at(80));
        assert_eq!(late.level, Level::Warning, "{late:?}");
    }

    #[test]
    fn one_good_authority_of_a_bundle_is_enough() {
        let (old, new) = (Authority::new(1, 20), Authority::new(15, 300));
        let both = [old.pem(), new.pem()].concat();
        let found = authorities(&both, "podward-mutating", at(25));
        assert!(found.len() == 1 && found[0].level == Level::Ok, "{found:?}");
        let found = authorities(old.pem(), "podward-mutating", at(25));
        assert!(found[0].level == Level::Failed && found[0].what.contains("expired"), "{found:?}");
        assert_eq!(authorities(b"rubbish", "podward-mutating", at(25))[0].level, Level::Failed);
    }

    #[test]
    fn what_cannot_be_seen_is_said_and_what_is_missing_fails() {
        let denied = judge_serving(
            &[("a".into(), Serving::Denied), ("b".into(), Serving::Denied)],
            &[],
            "ours",
            day(1),
        );
        assert!(denied.len() == 1 && denied[0].level == Level::Skipped, "{denied:?}");
        assert!(denied[0].what.contains("a-tls, b-tls"), "{denied:?}");
        let missing = judge_serving(&[("a".into(), Serving::Missing)], &[], "ours", day(1));
        assert_eq!(missing[0].level, Level::Failed);
    }

    #[test]
    fn a_bundle_is_looked_at_once() {
        let hook = |bundle: &str| Hook { bundle: bundle.into(), ..Hook::default() };
        let configuration =
            |name: &str, hooks| Configuration { name: name.into(), hooks, ..Configuration::default() };
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
