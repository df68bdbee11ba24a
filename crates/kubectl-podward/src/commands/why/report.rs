//! What is told of a pod.

use std::fmt::Write;
use std::time::Duration;

use podward_core::UnixNanos;
use podward_core::keys::SKIP_RULES;
use serde::Serialize;

/// What a pod waits for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) namespace: String,
    pub(super) pod: String,
    /// What its condition says, or would.
    pub(super) message: String,
    pub(super) waits: Vec<Wait>,
    /// What else is worth knowing.
    pub(super) notes: Vec<String>,
    /// Rules that the pod could be let pass without being asked, with those that it passes already.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) skippable: Vec<String>,
}

/// Somebody who keeps an operation waiting.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Wait {
    /// The operation's id.
    pub(super) operation: String,
    pub(super) operation_type: String,
    /// `PreCheck` or `PostCheck`.
    pub(super) stage: &'static str,
    pub(super) who: String,
    /// What kind of rule it is, or `busy`.
    pub(super) kind: String,
    pub(super) why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<String>,
    /// When it is over, as far as is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<String>,
    /// When it is over at the latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at_most: Option<String>,
    pub(super) next: String,
}

impl Report {
    pub(super) fn new(namespace: &str, pod: &str, message: String) -> Self {
        let (namespace, pod) = (namespace.to_owned(), pod.to_owned());
        Report { namespace, pod, message, waits: Vec::new(), notes: Vec::new(), skippable: Vec::new() }
    }

    /// For people.
    pub(super) fn text(&self, now: UnixNanos) -> String {
        let Report { namespace, pod, message, waits, notes, skippable } = self;
        let mut text = format!("pod {namespace}/{pod}: {message}\n");
        for wait in waits {
            let Wait { operation, operation_type, stage, who, kind, why, .. } = wait;
            let since = wait.since.as_ref().map(|since| format!(", since {since}{}", distance(since, now)));
            let since = since.unwrap_or_default();
            let _ = writeln!(
                text,
                "\n{who} ({kind}) keeps operation {operation} ({operation_type}) in its {stage}{since}"
            );
            let _ = writeln!(text, "  why:  {why}");
            if let Some(until) = &wait.until {
                let most = wait.at_most.as_ref().map(|most| format!("; {most} at most")).unwrap_or_default();
                let _ =
                    writeln!(text, "  until {until}{}, unless it is said again{most}", distance(until, now));
            }
            let _ = writeln!(text, "  -> {}", wait.next);
        }
        for note in notes {
            let _ = writeln!(text, "\n{note}");
        }
        if !skippable.is_empty() {
            // Between quotes for a shell, whatever the rules' names have in them.
            let rules = serde_json::json!({ "skipRules": skippable }).to_string().replace('\'', r"'\''");
            let _ = writeln!(
                text,
                "\nTo let this pod pass them without being asked:\n  kubectl annotate pod -n {namespace} {pod} --overwrite {SKIP_RULES}='{rules}'"
            );
        }
        harmless(&text)
    }
}

/// What others have written (reasons, messages of webhooks) can't steer the terminal.
fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() && letter != '\n' {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// ` (3 min)`, ` (in 3 min)`: how far `time` is from `now`.
fn distance(time: &str, now: UnixNanos) -> String {
    let Some(time) = UnixNanos::parse(time) else { return String::new() };
    match time > now {
        true => format!(" (in {})", words(time.since(now))),
        false => format!(" ({})", words(now.since(time))),
    }
}

fn words(time: Duration) -> String {
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
    fn what_others_wrote_neither_steers_the_terminal_nor_ends_a_quote() {
        let mut report = Report::new("shop", "web", "waits for \x1b[2Jnobody\rat all".to_owned());
        report.skippable = vec!["it's; rm".to_owned()];
        let text = report.text(UnixNanos(0));
        assert!(text.contains(r"waits for \u{1b}[2Jnobody\rat all"), "{text}");
        assert!(text.contains(r#"='{"skipRules":["it'\''s; rm"]}'"#), "{text}");
    }

    #[test]
    fn times_are_told_in_words() {
        let now = UnixNanos::parse("2026-01-01T10:00:00Z").unwrap();
        assert_eq!(distance("2026-01-01T09:59:01Z", now), " (59 s)");
        assert_eq!(distance("2026-01-01T10:59:59Z", now), " (in 59 min)");
        assert_eq!(distance("2026-01-01T00:00:00Z", now), " (10 h)");
        assert_eq!(distance("soon", now), "");
    }
}
