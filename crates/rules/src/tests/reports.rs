//! Which changes of a result have a pod reconciled.

use podward_core::rules::{RefusalCause, RuleRefusal};

use super::super::state::{RefusalFingerprint, RequestReport};
use super::super::webhook::WebhookFingerprint;

fn report(refusal: RuleRefusal, webhook: Option<WebhookFingerprint>) -> RequestReport {
    RequestReport {
        fingerprints: [RefusalFingerprint::of("web", &refusal, webhook)].into(),
        refusals: [("web".to_owned(), vec![refusal])].into(),
        ..RequestReport::default()
    }
}

#[test]
fn another_reason_is_news_and_another_number_is_not() {
    let budget = |cause, reason: &str| report(RuleRefusal::new("rule", reason).because(cause), None);
    let full = |reason: &str| budget(RefusalCause::MaxUnavailable, reason);
    let before = full("blocked: [max unavailable]=2/9, [current unavailable]=2/9");
    assert!(before.is_like(&full("blocked: [max unavailable]=2/9, [current unavailable]=3/9")));
    assert!(!before.is_like(&budget(RefusalCause::OtherCheck, "there is room")));
    let rejected = |trace: &str, message: &str| {
        let refusal = RuleRefusal::new("rule", format!("rejected, traceId {trace}, msg: {message}"));
        let webhook = WebhookFingerprint::Rejected(message.to_owned());
        report(refusal.because(RefusalCause::Webhook), Some(webhook))
    };
    let before = rejected("946a2852-2482-414a-956e-8e1ad81ae84c", "a backup is made");
    assert!(before.is_like(&rejected("29c321f3-4bee-4381-8135-df04bdab5920", "a backup is made")));
    assert!(!before.is_like(&rejected("29c321f3-4bee-4381-8135-df04bdab5920", "not today")));
    let labels = |reason: &str| report(RuleRefusal::new("rule", reason), None);
    assert!(labels("labels not match a").is_like(&labels("labels not match a")));
    assert!(!labels("labels not match a").is_like(&labels("labels not match b")));
}

#[test]
fn that_operators_get_the_refusal_is_news() {
    let held = report(RuleRefusal::new("rule", "no"), None);
    let reported = RequestReport { reported_to_operators: ["web".to_owned()].into(), ..held.clone() };
    assert!(!held.is_like(&reported) && reported.is_like(&reported.clone()));
}

/// The pod shows another reason then.
#[test]
fn that_the_status_cannot_be_written_is_news() {
    let before = report(RuleRefusal::new("rule", "no"), None);
    let held = RequestReport { held: true, ..before.clone() };
    assert!(!before.is_like(&held) && !held.is_like(&before));
}
