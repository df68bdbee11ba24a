//! The events of one object.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use podward_core::webhook_path::without_webhook_secrets;

/// The events of one object, the newest first.
#[derive(Clone, Debug, Default)]
pub struct PodEvents(Vec<Event>);

impl PodEvents {
    /// Sorts events by the time at which they were last seen.
    #[must_use]
    pub fn new(mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| std::cmp::Reverse(last_seen(event)));
        Self(events)
    }

    /// Returns the newest event with one of these reasons.
    pub(crate) fn newest(&self, reasons: &[&str]) -> Option<&Event> {
        self.with(reasons).next()
    }

    /// Returns the events with one of these reasons, the newest first.
    pub(crate) fn with(&self, reasons: &[&str]) -> impl Iterator<Item = &Event> {
        self.0.iter().filter(move |event| reasons.contains(&event.reason.as_deref().unwrap_or_default()))
    }

    /// Returns the newest event with this reason whose message begins with `prefix`, of `container` if its name is not
    /// empty.
    pub(crate) fn of_container(&self, reason: &str, prefix: &str, container: &str) -> Option<&Event> {
        let field = format!("{{{container}}}");
        self.0.iter().find(|event| {
            let path = event.involved_object.field_path.as_deref().unwrap_or_default();
            event.reason.as_deref() == Some(reason)
                && message(event).starts_with(prefix)
                && (container.is_empty() || path.ends_with(&field))
        })
    }
}

/// Returns the time at which an event was last seen.
pub(crate) fn last_seen(event: &Event) -> Option<Timestamp> {
    let of_series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let times = [of_series.map(|time| time.0), event.event_time.as_ref().map(|time| time.0)];
    let old = [&event.last_timestamp, &event.first_timestamp, &event.metadata.creation_timestamp];
    times.into_iter().chain(old.map(|time| time.as_ref().map(|time| time.0))).flatten().max()
}

/// Returns the time at which an event was first seen.
pub(crate) fn first_seen(event: &Event) -> Option<Timestamp> {
    let first = event.first_timestamp.as_ref().map(|time| time.0);
    first.or_else(|| event.event_time.as_ref().map(|time| time.0)).or_else(|| last_seen(event))
}

pub(crate) fn message(event: &Event) -> &str {
    event.message.as_deref().unwrap_or_default()
}

/// Returns how often an event was seen.
pub(crate) fn times(event: &Event) -> i32 {
    let of_series = event.series.as_ref().and_then(|series| series.count);
    of_series.or(event.count).unwrap_or(1).max(1)
}

/// Returns an event as evidence.
pub(crate) fn shown(event: &Event) -> String {
    let times = match times(event) {
        1 => String::new(),
        times => format!(" ({times} times)"),
    };
    let reason = event.reason.as_deref().unwrap_or_default();
    let message = without_webhook_secrets(message(event));
    format!("event {reason}{times}: {}", crate::words::shortened(&message, 400))
}
