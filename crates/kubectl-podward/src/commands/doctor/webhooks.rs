//! Whether the API server is told to ask Podward.

use anyhow::Result;

use super::finding::Finding;
use super::hooks::{self, Configuration, Hook};
use super::site::Site;

const RESTORE: &str = "helm upgrade writes the configuration anew";
/// Webhooks of deletion protection, which can be turned off.
const PROTECTION: [&str; 3] = ["delete.", "eviction.", "eviction-elsewhere."];

pub(super) async fn check(site: &Site) -> Result<Vec<Finding>> {
    let found = hooks::list(&site.client).await?;
    Ok(judge(&site.manifests.webhooks, &found, &site.namespace))
}

fn judge(expected: &[Configuration], found: &[Configuration], namespace: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for expected in expected {
        match found.iter().find(|found| found.name == expected.name) {
            Some(found) => findings.extend(judge_one(expected, found, namespace)),
            None => findings.push(Finding::failed(
                format!("there is no webhook configuration {}: the API server asks nobody", expected.name),
                RESTORE,
            )),
        }
    }
    findings
}

fn judge_one(expected: &Configuration, found: &Configuration, namespace: &str) -> Vec<Finding> {
    let name = &expected.name;
    let mut findings = Vec::new();
    let missing: Vec<&Hook> = expected
        .hooks
        .iter()
        .filter(|wanted| !found.hooks.iter().any(|hook| hook.name == wanted.name))
        .collect();
    let is_protection = |hook: &Hook| PROTECTION.iter().any(|prefix| hook.name.starts_with(prefix));
    let protecting = expected.hooks.iter().filter(|hook| is_protection(hook)).count();
    if protecting > 0 && missing.len() == protecting && missing.iter().all(|hook| is_protection(hook)) {
        findings.push(Finding::note(format!(
            "{name}: deletion protection is off, deletes and evictions are not held"
        )));
    } else {
        findings.extend(
            missing
                .iter()
                .map(|hook| Finding::failed(format!("{name} has no webhook {}", hook.name), RESTORE)),
        );
    }
    let known = found.hooks.iter().filter_map(|hook| {
        expected.hooks.iter().find(|wanted| wanted.name == hook.name).map(|wanted| (hook, wanted))
    });
    for (hook, wanted) in known {
        let leads_to = wanted.service.as_ref().map(|(_, service)| (namespace.to_owned(), service.clone()));
        if hook.service != leads_to {
            let to = |service: &Option<(String, String)>| match service {
                Some((namespace, name)) => format!("Service {namespace}/{name}"),
                None => "a URL".to_owned(),
            };
            findings.push(Finding::failed(
                format!("{} leads to {} instead of {}", hook.name, to(&hook.service), to(&leads_to)),
                RESTORE,
            ));
        } else if hook.bundle.is_empty() {
            findings.push(Finding::failed(
                format!("{} has no caBundle: the API server can't know who answers", hook.name),
                "whoever makes the certificates has to write it: the lifecycle-controller's log, or that of cert-manager's \
                 cainjector, says why it doesn't",
            ));
        }
    }
    if findings.iter().all(|finding| finding.next.is_none()) {
        let policies = found.hooks.iter().map(|hook| {
            let short = hook.name.split('.').next().unwrap_or(&hook.name);
            format!("{short} {}", if hook.fails_closed { "Fail" } else { "Ignore" })
        });
        let policies = policies.collect::<Vec<_>>().join(", ");
        findings.insert(0, Finding::ok(format!("{name} leads to Podward (failurePolicy: {policies})")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::manifests::Manifests;
    use super::*;

    /// As they are in the manifests, and with a bundle.
    fn installed() -> (Vec<Configuration>, Vec<Configuration>) {
        let expected = Manifests::read().unwrap().webhooks;
        let mut found = expected.clone();
        found.iter_mut().flat_map(|found| &mut found.hooks).for_each(|hook| hook.bundle = b"PEM".to_vec());
        (expected, found)
    }

    fn failed(change: impl FnOnce(&mut Vec<Configuration>)) -> Vec<String> {
        let (expected, mut found) = installed();
        change(&mut found);
        let findings = judge(&expected, &found, "podward-system");
        findings
            .into_iter()
            .filter(|finding| finding.level == Level::Failed)
            .map(|finding| finding.what)
            .collect()
    }

    #[test]
    fn what_is_installed_is_well_and_its_policies_are_told() {
        let (expected, mut found) = installed();
        found[0].hooks[0].fails_closed = false;
        let findings = judge(&expected, &found, "podward-system");
        assert_eq!(findings.len(), 2, "{findings:?}");
        let policies = "(failurePolicy: create Ignore, inject Fail, update Ignore, status Ignore)";
        assert!(findings[0].level == Level::Ok && findings[0].what.contains(policies), "{findings:?}");
    }

    #[test]
    fn each_thing_that_is_wrong_is_named() {
        let gone = failed(|found| drop(found.remove(0)));
        assert_eq!(gone, ["there is no webhook configuration podward-mutating: the API server asks nobody"]);
        let hook = failed(|found| drop(found[1].hooks.remove(0)));
        assert_eq!(hook, ["podward-validating has no webhook create.validating.podward.io"]);
        let bundle = failed(|found| found[0].hooks[2].bundle.clear());
        assert_eq!(
            bundle,
            ["update.mutating.podward.io has no caBundle: the API server can't know who answers"]
        );
        let elsewhere =
            failed(|found| found[0].hooks[0].service = Some(("old".into(), "mutating-webhook".into())));
        let words =
            "leads to Service old/mutating-webhook instead of Service podward-system/mutating-webhook";
        assert!(elsewhere.len() == 1 && elsewhere[0].contains(words), "{elsewhere:?}");
    }

    #[test]
    fn protection_that_is_off_is_a_note_and_half_of_it_a_failure() {
        let (expected, mut found) = installed();
        found[1].hooks.retain(|hook| !PROTECTION.iter().any(|prefix| hook.name.starts_with(prefix)));
        let findings = judge(&expected, &found, "podward-system");
        assert!(findings.iter().any(|finding| finding.level == Level::Note), "{findings:?}");
        assert!(findings.iter().all(|finding| finding.level <= Level::Note), "{findings:?}");
        assert_eq!(failed(|found| found[1].hooks.retain(|hook| !hook.name.starts_with("delete."))).len(), 1);
    }
}
