//! The report on a pod.

use std::fmt::Write;
use std::time::Duration;

use jiff::Timestamp;
use podward_core::UnixNanos;
use podward_core::keys::SKIP_RULES;
use podward_diagnosis::{Cause, safe_text};
use serde::Serialize;

use super::traffic::{TrafficSource, disagreement};

/// The report on what a pod waits for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WhyReport {
    pub(super) namespace: String,
    pub(super) pod: String,
    /// The message of the lifecycle condition, as stored or as it would be written.
    pub(super) message: String,
    /// The causes, the most probable one first.
    pub(super) causes: Vec<Cause>,
    pub(super) waits: Vec<OperationWait>,
    /// The service registries that the pod waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) registries: Vec<RegistryWait>,
    /// The sources of traffic that know the pod, and how.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) traffic: Vec<TrafficSource>,
    /// Additional information.
    pub(super) notes: Vec<String>,
    /// The rules to skip so that the pod passes, including those that it skips already.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) skippable: Vec<String>,
}

/// A reason why an operation waits.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OperationWait {
    /// The operation's ID.
    pub(super) operation: String,
    pub(super) operation_type: String,
    /// `PreCheck` or `PostCheck`.
    pub(super) stage: &'static str,
    pub(super) who: String,
    /// The kind of the rule, or `busy`.
    pub(super) kind: String,
    pub(super) why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<String>,
    /// The expected end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<String>,
    /// The latest end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at_most: Option<String>,
    pub(super) next: String,
}

/// A service registry that the pod waits for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RegistryWait {
    /// The hook of the binding, which the message names.
    pub(super) hook: String,
    /// Namespace and name of the DiscoveryBinding.
    pub(super) binding: String,
    /// The template of the service's name.
    pub(super) service: String,
    pub(super) registry: String,
    pub(super) why: String,
    pub(super) next: String,
}

impl WhyReport {
    pub(super) fn new(namespace: &str, pod: &str, message: String) -> Self {
        let (namespace, pod) = (namespace.to_owned(), pod.to_owned());
        let (causes, waits, registries, traffic) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (notes, skippable) = (Vec::new(), Vec::new());
        WhyReport { namespace, pod, message, causes, waits, registries, traffic, notes, skippable }
    }

    /// Returns the report as text.
    pub(super) fn text(&self, now: UnixNanos) -> String {
        let WhyReport { namespace, pod, message, causes, waits, registries, traffic, notes, skippable } =
            self;
        let at = Timestamp::from_nanosecond(i128::from(now.0)).unwrap_or_default();
        let first = causes.first().map_or_else(|| message.clone(), |cause| cause.line(at));
        let mut text = format!("pod {namespace}/{pod}: {first}\n");
        for (number, cause) in causes.iter().enumerate() {
            if number > 0 {
                let _ = writeln!(text, "also: {}", cause.line(at));
            }
            for line in &cause.evidence {
                let _ = writeln!(text, "  {line}");
            }
        }
        for wait in waits {
            let OperationWait { operation, operation_type, stage, who, kind, why, .. } = wait;
            let since = wait.since.as_ref().map(|since| format!(" since {since}{}", distance(since, now)));
            let since = since.unwrap_or_default();
            let _ = writeln!(
                text,
                "\n{who} ({kind}) blocks the {stage} of operation {operation} ({operation_type}){since}"
            );
            let _ = writeln!(text, "  why:  {why}");
            if let Some(until) = &wait.until {
                let most =
                    wait.at_most.as_ref().map(|most| format!("; {most} at the latest")).unwrap_or_default();
                let _ = writeln!(
                    text,
                    "  until {until}{}, unless the pod extends it{most}",
                    distance(until, now)
                );
            }
            let _ = writeln!(text, "  -> {}", wait.next);
        }
        for RegistryWait { hook, binding, service, registry, why, next } in registries {
            let _ = writeln!(
                text,
                "\nhook {hook} is DiscoveryBinding {binding}: service {service} of {registry}"
            );
            let _ = writeln!(text, "  why:  {why}\n  -> {next}");
        }
        for (number, source) in traffic.iter().enumerate() {
            let _ = writeln!(text, "{}traffic: {}", if number == 0 { "\n" } else { "" }, source.text());
        }
        if let Some(disagreement) = disagreement(traffic) {
            let _ = writeln!(text, "traffic: {disagreement}");
        }
        for note in notes {
            let _ = writeln!(text, "\n{note}");
        }
        if !skippable.is_empty() {
            // Quoted for a shell. Names of rules can contain quotes.
            let rules = serde_json::json!({ "skipRules": skippable }).to_string().replace('\'', r"'\''");
            let _ = writeln!(
                text,
                "\nTo skip these rules for this pod:\n  \
                 kubectl annotate pod -n {namespace} {pod} --overwrite {SKIP_RULES}='{rules}'"
            );
        }
        safe_text(&text)
    }
}

/// Returns the distance of `time` from `now`, such as ` (3 min)` for the past and ` (in 3 min)` for the future. Returns
/// an empty text if `time` cannot be parsed.
fn distance(time: &str, now: UnixNanos) -> String {
    let Some(time) = UnixNanos::parse(time) else { return String::new() };
    match time > now {
        true => format!(" (in {})", in_words(time.since(now))),
        false => format!(" ({})", in_words(now.since(time))),
    }
}

/// Formats a duration in one unit.
fn in_words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_quotes_are_escaped() {
        let mut report = WhyReport::new("shop", "web", "waits for \x1b[2Jnobody\rat all".to_owned());
        report.skippable = vec!["it's; rm".to_owned()];
        let text = report.text(UnixNanos(0));
        assert!(text.contains(r"waits for \u{1b}[2Jnobody\rat all"), "{text}");
        assert!(text.contains(r#"='{"skipRules":["it'\''s; rm"]}'"#), "{text}");
    }

    #[test]
    fn distances_have_one_unit() {
        let now = UnixNanos::parse("2026-01-01T10:00:00Z").unwrap();
        assert_eq!(distance("2026-01-01T09:59:01Z", now), " (59 s)");
        assert_eq!(distance("2026-01-01T10:59:59Z", now), " (in 59 min)");
        assert_eq!(distance("2026-01-01T00:00:00Z", now), " (10 h)");
        assert_eq!(distance("soon", now), "");
    }
}
