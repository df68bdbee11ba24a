//! What Podward holds a pod for: operations, rules, busy work and service registries.

use anyhow::Result;
use kube::ResourceExt;
use kube::api::DynamicObject;
use podward_core::{Operations, Pod, UnixNanos};

use super::report::WhyReport;
use super::rules::RuleWithStatus;
use super::{busy, rules};
use crate::lifecycle_message::lifecycle_message;
use crate::parsed::parsed;

/// Returns what the pod `object` waits for at `now`. `rules` are the rules of its namespace, or the reason why they
/// could not be read.
///
/// # Errors
/// When the pod cannot be parsed.
pub(super) fn inspect(
    object: &DynamicObject,
    rules: Result<Vec<RuleWithStatus>, String>,
    now: UnixNanos,
) -> Result<WhyReport> {
    let pod: Pod = parsed(object)?;
    let view = pod.view();
    let operations = Operations::parse(view.labels);
    let message = lifecycle_message(&pod, &operations);
    let mut report = WhyReport::new(&pod.metadata.namespace, &pod.metadata.name, message);
    if view.is_controlled() && !view.terminating {
        let annotations = object.annotations();
        match rules {
            Ok(rules) => rules::add_waits(&mut report, &pod, annotations, &operations, &rules),
            Err(error) => {
                rules::add_waits_from_annotations(&mut report, &pod, annotations, &operations, &error)
            }
        }
        busy::add_waits(&mut report, &pod, &operations, now);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use kube::core::DeserializeGuard;
    use podward_api::PodTransitionRule;
    use serde_json::{Value, json};

    use super::*;

    const NOW: UnixNanos = UnixNanos(1_767_261_780_000_000_000); // 2026-01-01T10:03:00Z

    fn pod(annotations: Value, message: Option<&str>) -> DynamicObject {
        let conditions: Vec<Value> = message
            .map(|text| {
                let state = if text.contains("in service") {
                    ("True", "InService")
                } else {
                    ("False", "PreChecking")
                };
                json!({"type": "podward.io/lifecycle", "status": state.0, "reason": state.1, "message": text})
            })
            .into_iter()
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": "shop", "name": "web-0", "uid": "u", "annotations": annotations,
                "labels": {
                    "app": "web",
                    "kusionstack.io/control": "true",
                    "podopslifecycle.kusionstack.io/service-available": "1",
                    "operating.podopslifecycle.kusionstack.io/upgrade": "1",
                    "operation-type.podopslifecycle.kusionstack.io/upgrade": "update",
                    // 2026-01-01T10:00:00Z
                    "pre-check.podopslifecycle.kusionstack.io/upgrade": "1767261600000000000",
                },
            },
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn rule(status: Value) -> RuleWithStatus {
        RuleWithStatus::applying(rule_object(&json!({}), &status)).unwrap()
    }

    fn rule_object(metadata: &Value, status: &Value) -> DeserializeGuard<PodTransitionRule> {
        let mut object = json!({
            "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
            "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "rules": [
                    {"name": "a-quarter", "availablePolicy": {"maxUnavailableValue": "25%"}},
                    {"name": "backed-up", "labelCheck": {"requires": {"matchLabels": {"backup": "done"}}}},
                    {"name": "outside", "webhook": {"clientConfig": {"url": "https://checks.shop"}}},
                    {
                        "name": "result", "stage": "PostCheck",
                        "webhook": {"clientConfig": {"url": "https://checks.shop"}},
                    },
                ],
            },
            "status": status,
        });
        object["metadata"]["namespace"] = json!("shop");
        object["metadata"]["name"] = json!("web");
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_rule_that_is_being_deleted_does_not_apply() {
        let deleted =
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/kept"]});
        assert!(RuleWithStatus::applying(rule_object(&deleted, &json!({}))).is_none());
    }

    fn found(report: &WhyReport) -> Vec<(&str, &str, &str)> {
        report.waits.iter().map(|wait| (wait.who.as_str(), wait.kind.as_str(), wait.why.as_str())).collect()
    }

    #[test]
    fn every_refusing_rule_has_a_kind_and_a_next_step() {
        let details = json!({"details": [
            {"name": "web-1", "stage": "PreCheck", "passed": true},
            {"name": "web-0", "stage": "PreCheck", "passed": false, "passedRules": ["outside"],
             "rejectInfo": [
                {"ruleName": "a-quarter", "reason": "full"}, {"ruleName": "backed-up", "reason": "old text"},
             ]},
        ]});
        let report =
            inspect(&pod(json!({}), Some("operation upgrade (update) waits")), Ok(vec![rule(details)]), NOW)
                .unwrap();
        let labels = "block by label check policy, pod shop/web-0 labels not match ";
        let waits = found(&report);
        assert_eq!(waits.len(), 2, "{waits:?}");
        assert_eq!(waits[0], ("rule web/a-quarter", "availablePolicy", "full"));
        assert!(waits[1].0 == "rule web/backed-up" && waits[1].2.starts_with(labels), "{waits:?}");
        let text = report.text(NOW);
        for line in [
            "pod shop/web-0: operation upgrade (update) waits\n",
            "rule web/a-quarter (availablePolicy) blocks the PreCheck of operation upgrade (update) \
             since 2026-01-01T10:00:00Z (3 min)\n",
            "  why:  full\n",
            "kubectl annotate pod -n shop web-0 --overwrite \
             podtransitionrule.kusionstack.io/skip-rule-conditions='{\"skipRules\":[\"a-quarter\",\"backed-up\"]}'",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }

    #[test]
    fn an_old_condition_is_not_shown() {
        for old in ["the pod is in service", "operation before (update) waits for its pre-checks: full"] {
            let report = inspect(&pod(json!({}), Some(old)), Ok(Vec::new()), NOW).unwrap();
            assert!(report.message.starts_with("operation upgrade (update) "), "{old}: {}", report.message);
        }
    }

    #[test]
    fn a_rule_without_a_result_is_a_wait_too() {
        let skip = json!({"podtransitionrule.kusionstack.io/skip-rule-conditions": "{\"skipRules\":[\"backed-up\"]}"});
        let report = inspect(&pod(skip, None), Ok(vec![rule(json!({}))]), NOW).unwrap();
        let waits: Vec<&str> = report.waits.iter().map(|wait| wait.who.as_str()).collect();
        assert_eq!(waits, ["rule web/a-quarter", "rule web/outside"]);
        // Rules that were skipped before stay skipped.
        assert!(report.text(NOW).contains("{\"skipRules\":[\"backed-up\",\"a-quarter\",\"outside\"]}"));
        assert!(report.message.contains("operation upgrade (update)"), "{}", report.message);
    }

    #[test]
    fn results_can_be_on_the_pod_instead_of_the_status() {
        let info = json!([{"ruleName": "outside", "reason": "not today"}]);
        let detail = json!({"stage": "PreCheck", "passed": false, "rejectInfo": info});
        let annotations = json!({"detail.podtransitionrule.kusionstack.io/web": detail.to_string()});
        let report = inspect(&pod(annotations.clone(), None), Ok(vec![rule(json!({}))]), NOW).unwrap();
        assert!(found(&report).contains(&("rule web/outside", "webhook", "not today")), "{report:?}");
        let report = inspect(&pod(annotations, None), Err("forbidden".to_owned()), NOW).unwrap();
        assert_eq!(found(&report), [("rule web/outside", "unknown", "not today")]);
        assert!(report.text(NOW).contains("the PodTransitionRules of shop could not be read: forbidden"));
    }

    #[test]
    fn rules_of_other_pods_and_passed_checks_are_no_waits() {
        let mut other = pod(json!({}), None);
        let labels = other.metadata.labels.as_mut().unwrap();
        labels.insert("pre-checked.podopslifecycle.kusionstack.io/upgrade".to_owned(), "2".to_owned());
        assert!(found(&inspect(&other, Ok(vec![rule(json!({}))]), NOW).unwrap()).is_empty());
        let mut other = pod(json!({}), None);
        other.metadata.labels.as_mut().unwrap().insert("app".to_owned(), "api".to_owned());
        assert!(found(&inspect(&other, Ok(vec![rule(json!({}))]), NOW).unwrap()).is_empty());
    }

    #[test]
    fn a_busy_pod_has_a_reason_an_end_and_a_maximum() {
        let annotations = json!({
            "podward.io/busy-until": "2026-01-01T10:05:00Z", "podward.io/busy-reason": "encoding 17",
            "podward.io/busy-limits": json!({"upgrade": "2026-01-01T11:00:00Z"}).to_string(),
        });
        let message = "operation upgrade (update) waits for its pre-checks: busy until 2026-01-01T10:05:00Z: \
                       encoding 17; Podward waits until 2026-01-01T11:00:00Z at the latest";
        let report = inspect(&pod(annotations.clone(), Some(message)), Ok(Vec::new()), NOW).unwrap();
        assert_eq!(
            found(&report),
            [("the pod's own work", "busy", "busy until 2026-01-01T10:05:00Z: encoding 17")]
        );
        let wait = &report.waits[0];
        assert_eq!(wait.until.as_deref(), Some("2026-01-01T10:05:00Z"));
        assert_eq!(wait.at_most.as_deref(), Some("2026-01-01T11:00:00Z"));
        let (text, line) = (
            report.text(NOW),
            "  until 2026-01-01T10:05:00Z (in 2 min), unless the pod extends it; 2026-01-01T11:00:00Z at the latest\n",
        );
        assert!(text.contains(line), "{text}");
        // The maximum has passed, or the work has ended, so the pod does not wait for it.
        let late = UnixNanos(NOW.0 + 3_600_000_000_000);
        assert!(
            found(&inspect(&pod(annotations.clone(), Some(message)), Ok(Vec::new()), late).unwrap())
                .is_empty()
        );
        let mut idle = pod(annotations, None);
        idle.metadata.labels = Some([("kusionstack.io/control".to_owned(), "true".to_owned())].into());
        let report = inspect(&idle, Ok(Vec::new()), NOW).unwrap();
        assert!(
            report.waits.is_empty() && report.notes[0].contains("no operation waits for it"),
            "{report:?}"
        );
    }
}
