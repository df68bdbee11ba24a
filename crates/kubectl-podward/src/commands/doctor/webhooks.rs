//! Checks that the API server is configured to call Podward's webhooks.

use anyhow::Result;

use super::configurations::{self, Webhook, WebhookConfiguration};
use super::finding::Finding;
use super::target::DoctorTarget;

const RESTORE: &str = "run helm upgrade to restore the configuration";
/// The webhooks of deletion protection, which is optional.
const PROTECTION: [&str; 4] = ["delete.", "delete-from-cloneset.", "eviction.", "eviction-elsewhere."];

pub(super) async fn check(target: &DoctorTarget) -> Result<Vec<Finding>> {
    let found = configurations::list(&target.client).await?;
    Ok(judge(&target.manifests.webhooks, &found, &target.namespace))
}

fn judge(expected: &[WebhookConfiguration], found: &[WebhookConfiguration], namespace: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for expected in expected {
        match found.iter().find(|found| found.name == expected.name) {
            Some(found) => findings.extend(judge_one(expected, found, namespace)),
            None => findings.push(Finding::failed(
                format!(
                    "there is no webhook configuration {}: the API server does not call Podward",
                    expected.name
                ),
                RESTORE,
            )),
        }
    }
    findings
}

fn judge_one(expected: &WebhookConfiguration, found: &WebhookConfiguration, namespace: &str) -> Vec<Finding> {
    let name = &expected.name;
    let mut findings = Vec::new();
    let missing: Vec<&Webhook> = expected
        .hooks
        .iter()
        .filter(|wanted| !found.hooks.iter().any(|hook| hook.name == wanted.name))
        .collect();
    let is_protection = |hook: &Webhook| PROTECTION.iter().any(|prefix| hook.name.starts_with(prefix));
    let protecting = expected.hooks.iter().filter(|hook| is_protection(hook)).count();
    if protecting > 0 && missing.len() == protecting && missing.iter().all(|hook| is_protection(hook)) {
        findings.push(Finding::note(format!(
            "{name}: deletion protection is off; deletes and evictions are not held"
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
        let expected_service =
            wanted.service.as_ref().map(|(_, service)| (namespace.to_owned(), service.clone()));
        if hook.service != expected_service {
            let to = |service: &Option<(String, String)>| match service {
                Some((namespace, name)) => format!("Service {namespace}/{name}"),
                None => "a URL".to_owned(),
            };
            findings.push(Finding::failed(
                format!("{} calls {} instead of {}", hook.name, to(&hook.service), to(&expected_service)),
                RESTORE,
            ));
        } else if hook.bundle.is_empty() {
            findings.push(Finding::failed(
                format!("{} has no caBundle: the API server cannot verify the webhook", hook.name),
                "the lifecycle-controller, or cert-manager's cainjector, writes the caBundle; its log says why \
                 it does not",
            ));
        }
    }
    if findings.iter().all(|finding| finding.next.is_none()) {
        let policies = found.hooks.iter().map(|hook| {
            let short = hook.name.split('.').next().unwrap_or(&hook.name);
            format!("{short} {}", if hook.fails_closed { "Fail" } else { "Ignore" })
        });
        let policies = policies.collect::<Vec<_>>().join(", ");
        findings.insert(0, Finding::ok(format!("{name} calls Podward (failurePolicy: {policies})")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingLevel;
    use super::super::manifests::ExpectedManifests;
    use super::*;

    /// Returns the expected configurations, and the same with a caBundle.
    fn installed() -> (Vec<WebhookConfiguration>, Vec<WebhookConfiguration>) {
        let expected = ExpectedManifests::read().unwrap().webhooks;
        let mut found = expected.clone();
        found.iter_mut().flat_map(|found| &mut found.hooks).for_each(|hook| hook.bundle = b"PEM".to_vec());
        (expected, found)
    }

    fn failed(change: impl FnOnce(&mut Vec<WebhookConfiguration>)) -> Vec<String> {
        let (expected, mut found) = installed();
        change(&mut found);
        let findings = judge(&expected, &found, "podward-system");
        findings
            .into_iter()
            .filter(|finding| finding.level == FindingLevel::Failed)
            .map(|finding| finding.what)
            .collect()
    }

    #[test]
    fn complete_configurations_are_ok_and_show_their_policies() {
        let (expected, mut found) = installed();
        found[0].hooks[0].fails_closed = false;
        let findings = judge(&expected, &found, "podward-system");
        assert_eq!(findings.len(), 2, "{findings:?}");
        let policies = "(failurePolicy: create Ignore, inject Fail, update Ignore, status Ignore)";
        assert!(findings[0].level == FindingLevel::Ok && findings[0].what.contains(policies), "{findings:?}");
    }

    #[test]
    fn each_fault_is_named() {
        let gone = failed(|found| drop(found.remove(0)));
        assert_eq!(
            gone,
            ["there is no webhook configuration podward-mutating: the API server does not call Podward"]
        );
        let hook = failed(|found| drop(found[1].hooks.remove(0)));
        assert_eq!(hook, ["podward-validating has no webhook create.validating.podward.io"]);
        let bundle = failed(|found| found[0].hooks[2].bundle.clear());
        assert_eq!(
            bundle,
            ["update.mutating.podward.io has no caBundle: the API server cannot verify the webhook"]
        );
        let elsewhere =
            failed(|found| found[0].hooks[0].service = Some(("old".into(), "mutating-webhook".into())));
        let words = "calls Service old/mutating-webhook instead of Service podward-system/mutating-webhook";
        assert!(elsewhere.len() == 1 && elsewhere[0].contains(words), "{elsewhere:?}");
    }

    #[test]
    fn disabled_protection_is_a_note_and_partial_protection_a_failure() {
        let (expected, _) = installed();
        // The chart's case without deletion protection.
        let rendered = include_str!("../../../../../tests/charts/cases/small/rendered.yaml");
        let mut found = ExpectedManifests::parse(rendered, &[]).unwrap().webhooks;
        found.iter_mut().flat_map(|found| &mut found.hooks).for_each(|hook| hook.bundle = b"PEM".to_vec());
        let findings = judge(&expected, &found, "podward-system");
        assert!(findings.iter().any(|finding| finding.level == FindingLevel::Note), "{findings:?}");
        assert!(findings.iter().all(|finding| finding.level <= FindingLevel::Note), "{findings:?}");
        assert_eq!(failed(|found| found[1].hooks.retain(|hook| !hook.name.starts_with("delete."))).len(), 1);
    }
}
