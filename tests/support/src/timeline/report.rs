//! All that happened to pods, in words and times.

use std::collections::{BTreeMap, BTreeSet};

use podward_core::Phase;
use serde::Serialize;

use super::{History, OperationRecord, Version, Violation, invariants, operations};

/// Something that happened to a pod.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PodEvent {
    /// In milliseconds since the timeline started.
    pub at_ms: f64,
    /// The operation's id, if it concerns one.
    pub id: Option<String>,
    /// The operation's type.
    #[serde(rename = "type")]
    pub operation_type: Option<String>,
    /// The operation's phase, or what changed about the pod.
    pub what: String,
}

/// All that happened to a pod.
#[derive(Clone, Debug, Serialize)]
pub struct PodReport {
    /// The pod's name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// What happened, in order.
    pub events: Vec<PodEvent>,
    /// The operations on it, in the order of their beginnings.
    pub operations: Vec<OperationRecord>,
    /// Labels of the protocol in the last version, but for `service-available`.
    pub labels_left: Vec<String>,
    /// Whether it was available in the last version.
    pub available: bool,
    /// How many versions were seen.
    pub versions: usize,
}

/// All that happened to all pods.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// In the order of names.
    pub pods: Vec<PodReport>,
    /// What was wrong. Empty if all was right.
    pub violations: Vec<Violation>,
}

impl Report {
    pub(super) fn of(histories: &[History], at_rest: bool) -> Self {
        let mut violations: Vec<Violation> = histories.iter().flat_map(invariants::check).collect();
        if at_rest {
            violations.extend(histories.iter().flat_map(invariants::check_at_rest));
        }
        Self { pods: histories.iter().map(PodReport::of).collect(), violations }
    }

    /// The report on the pod `name`.
    #[must_use]
    pub fn pod(&self, name: &str) -> Option<&PodReport> {
        self.pods.iter().find(|pod| pod.name == name)
    }
}

impl PodReport {
    fn of(history: &History) -> Self {
        let last = history.versions.last();
        Self {
            name: history.name.clone(),
            uid: history.uid.clone(),
            events: events(history),
            operations: operations::operations(history),
            labels_left: last.into_iter().flat_map(invariants::labels_left).map(str::to_owned).collect(),
            available: last.is_some_and(Version::is_available),
            versions: history.versions.len(),
        }
    }

    /// The operations with this id.
    pub fn operations_of<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a OperationRecord> {
        self.operations.iter().filter(move |operation| operation.id == id)
    }
}

/// Everything about a pod that events tell of.
#[derive(Default)]
struct Traits<'a> {
    phases: BTreeMap<&'a str, (Phase, Option<String>)>,
    facts: Vec<(&'static str, String)>,
    holders: BTreeSet<&'a str>,
}

fn traits(version: &Version) -> Traits<'_> {
    let operations = version.operations();
    let phases = operations.iter().filter_map(|(id, operation)| {
        let operation_type = operation.known_type().map(str::to_owned);
        Phase::of(operation).map(|phase| (id, (phase, operation_type)))
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
    Traits { phases: phases.collect(), facts, holders: version.holders.iter().map(String::as_str).collect() }
}

fn events(history: &History) -> Vec<PodEvent> {
    let mut events = Vec::new();
    let mut before = Traits::default();
    for version in &history.versions {
        let at_ms = version.at_ms;
        let now = traits(version);
        let plain = |what: String| PodEvent { at_ms, id: None, operation_type: None, what };
        for (name, text) in &now.facts {
            let earlier = before.facts.iter().find(|(earlier, _)| earlier == name);
            // A pod starts with neither of them: that is no event.
            let is_news = earlier.map_or_else(|| !text.starts_with("not "), |(_, earlier)| earlier != text);
            if is_news {
                events.push(plain(text.clone()));
            }
        }
        events
            .extend(now.holders.difference(&before.holders).map(|holder| plain(format!("held by {holder}"))));
        events.extend(
            before.holders.difference(&now.holders).map(|holder| plain(format!("let go by {holder}"))),
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
