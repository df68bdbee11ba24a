//! Everything that happened to pods, with times.

use std::collections::{BTreeMap, BTreeSet};

use podward_core::OperationPhase;
use serde::Serialize;

use super::{
    history::PodHistory,
    invariants::{self, Violation},
    operations::{self, OperationRecord},
    version::PodVersion,
};

/// A change of a pod.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PodEvent {
    /// In milliseconds since the timeline started.
    pub at_ms: f64,
    /// The id of the operation, if the change belongs to one.
    pub id: Option<String>,
    /// The operation's type.
    #[serde(rename = "type")]
    pub operation_type: Option<String>,
    /// The phase of the operation, or the change of the pod.
    pub what: String,
}

/// Everything that happened to a pod.
#[derive(Clone, Debug, Serialize)]
pub struct PodReport {
    /// The pod's name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The changes, in order.
    pub events: Vec<PodEvent>,
    /// The operations on it, in the order in which they began.
    pub operations: Vec<OperationRecord>,
    /// Labels of the protocol in the last version, but for `service-available`.
    pub labels_left: Vec<String>,
    /// True if it was available in the last version.
    pub available: bool,
    /// The number of observed versions.
    pub versions: usize,
}

/// Everything that happened to all pods.
#[derive(Clone, Debug, Serialize)]
pub struct TimelineReport {
    /// The pods, sorted by name.
    pub pods: Vec<PodReport>,
    /// The violations.
    pub violations: Vec<Violation>,
}

impl TimelineReport {
    pub(super) fn of(histories: &[PodHistory], at_rest: bool) -> Self {
        let mut violations: Vec<Violation> = histories.iter().flat_map(invariants::check).collect();
        if at_rest {
            violations.extend(histories.iter().flat_map(invariants::check_at_rest));
        }
        Self { pods: histories.iter().map(PodReport::of).collect(), violations }
    }

    /// Returns the report of the pod `name`.
    #[must_use]
    pub fn pod(&self, name: &str) -> Option<&PodReport> {
        self.pods.iter().find(|pod| pod.name == name)
    }
}

impl PodReport {
    fn of(history: &PodHistory) -> Self {
        let last = history.versions.last();
        Self {
            name: history.name.clone(),
            uid: history.uid.clone(),
            events: events(history),
            operations: operations::operations(history),
            labels_left: last.into_iter().flat_map(invariants::labels_left).map(str::to_owned).collect(),
            available: last.is_some_and(PodVersion::is_available),
            versions: history.versions.len(),
        }
    }

    /// Returns the operations with this id.
    pub fn operations_of<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a OperationRecord> {
        self.operations.iter().filter(move |operation| operation.id == id)
    }
}

/// The parts of a version that events are derived from.
#[derive(Default)]
struct VersionTraits<'a> {
    phases: BTreeMap<&'a str, (OperationPhase, Option<String>)>,
    facts: Vec<(&'static str, String)>,
    holders: BTreeSet<&'a str>,
}

fn traits(version: &PodVersion) -> VersionTraits<'_> {
    let operations = version.operations();
    let phases = operations.iter().filter_map(|(id, operation)| {
        let operation_type = operation.known_type().map(str::to_owned);
        OperationPhase::of(operation).map(|phase| (id, (phase, operation_type)))
    });
    let yes_no = |yes: bool, this: &str, other: &str| if yes { this } else { other }.to_owned();
    let mut facts = vec![
        ("ready", yes_no(version.ready, "Ready", "not Ready")),
        ("available", yes_no(version.is_available(), "service-available", "not service-available")),
    ];
    if let Some(gate) = version.gate {
        facts.push(("gate", format!("gate {gate}")));
    }
    if let Some(image) = &version.image {
        facts.push(("image", format!("runs {image}")));
    }
    if version.terminating {
        facts.push(("terminating", "is being deleted".to_owned()));
    }
    VersionTraits {
        phases: phases.collect(),
        facts,
        holders: version.holders.iter().map(String::as_str).collect(),
    }
}

fn events(history: &PodHistory) -> Vec<PodEvent> {
    let mut events = Vec::new();
    let mut before = VersionTraits::default();
    for version in &history.versions {
        let at_ms = version.at_ms;
        let now = traits(version);
        let plain = |what: String| PodEvent { at_ms, id: None, operation_type: None, what };
        for (name, text) in &now.facts {
            let earlier = before.facts.iter().find(|(earlier, _)| earlier == name);
            // A pod starts with neither of them, which is no event.
            let is_news = earlier.map_or_else(|| !text.starts_with("not "), |(_, earlier)| earlier != text);
            if is_news {
                events.push(plain(text.clone()));
            }
        }
        events
            .extend(now.holders.difference(&before.holders).map(|holder| plain(format!("held by {holder}"))));
        events.extend(
            before.holders.difference(&now.holders).map(|holder| plain(format!("released by {holder}"))),
        );
        for (id, (phase, operation_type)) in &now.phases {
            if before.phases.get(id).is_none_or(|(earlier, _)| earlier != phase) {
                let (id, operation_type) = (Some((*id).to_owned()), operation_type.clone());
                events.push(PodEvent { at_ms, id, operation_type, what: phase.to_string() });
            }
        }
        for (id, (_, operation_type)) in before.phases.iter().filter(|(id, _)| !now.phases.contains_key(*id))
        {
            let (id, operation_type) = (Some((*id).to_owned()), operation_type.clone());
            events.push(PodEvent { at_ms, id, operation_type, what: "over".to_owned() });
        }
        before = now;
    }
    if let Some(at_ms) = history.gone_ms {
        events.push(PodEvent { at_ms, id: None, operation_type: None, what: "is gone".to_owned() });
    }
    events
}
