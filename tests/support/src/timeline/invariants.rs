//! The invariants of a version of a pod, and of the change from one version to the next. They are stated over the
//! recorded labels, not with functions of the engine, so that a mistake in the engine does not hide itself.

use podward_core::keys::{self, Stage};
use serde::Serialize;

use super::{history::PodHistory, version::PodVersion};

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Violation {
    /// The pod, or an empty string if the violation concerns the record itself.
    pub pod: String,
    /// The time of the observation, in milliseconds since the timeline started.
    pub at_ms: f64,
    /// The rule.
    pub rule: &'static str,
    /// The observation.
    pub seen: String,
}

impl Violation {
    pub(super) fn gaps(gaps: usize) -> Self {
        Self {
            pod: String::new(),
            at_ms: 0.0,
            rule: "every version of every pod is recorded",
            seen: format!("the watch had to list anew {gaps} times, so versions may be missing"),
        }
    }
}

/// Returns all violations in `history`.
#[must_use]
pub fn check(history: &PodHistory) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut before: Option<&PodVersion> = None;
    for (number, version) in history.versions.iter().enumerate() {
        if history.after_gaps.contains(&number) {
            // The versions in between are unknown, so that only the invariants of the version itself are checked.
            before = Some(version);
        }
        let mut object = |rule: &'static str, seen: String| {
            found.push(Violation { pod: history.name.clone(), at_ms: version.at_ms, rule, seen });
        };
        check_operate(before, version, &mut object);
        check_gate(before, version, &mut object);
        check_available(before, version, &mut object);
        check_refused(version, &mut object);
        before = Some(version);
    }
    found
}

/// Returns the violations in the last version of a pod on which no operation runs.
#[must_use]
pub fn check_at_rest(history: &PodHistory) -> Vec<Violation> {
    let Some(last) = history.versions.last().filter(|last| history.gone_ms.is_none() && !last.terminating)
    else {
        return Vec::new();
    };
    let left: Vec<&str> = labels_left(last).collect();
    let is_clean = left.is_empty() && last.is_available();
    let seen = match (is_clean, left.is_empty()) {
        (true, _) => return Vec::new(),
        (false, true) => format!("{} is not there", keys::SERVICE_AVAILABLE),
        (false, false) => format!("left: {}", left.join(", ")),
    };
    let rule = "at the end nothing but service-available is left of the protocol's labels";
    vec![Violation { pod: history.name.clone(), at_ms: last.at_ms, rule, seen }]
}

/// Returns the protocol's labels in `version`, without `service-available`.
pub(super) fn labels_left(version: &PodVersion) -> impl Iterator<Item = &str> {
    version.labels.keys().map(String::as_str).filter(|key| *key != keys::SERVICE_AVAILABLE)
}

fn having(version: &PodVersion, stage: Stage) -> impl Iterator<Item = &str> {
    let operations = version.operations();
    let ids: Vec<&str> =
        operations.iter().filter(|(_, operation)| operation.has(stage)).map(|(id, _)| id).collect();
    ids.into_iter()
}

fn check_operate(
    before: Option<&PodVersion>,
    version: &PodVersion,
    object: &mut impl FnMut(&'static str, String),
) {
    for id in having(version, Stage::Operate) {
        if version.gate_is_on() {
            object("operate is never there while the gate is True", format!("operate/{id}, gate True"));
        }
        let is_new = before.is_none_or(|before| !before.labels.contains_key(&Stage::Operate.key(id)));
        if is_new && version.has_gate && version.gate != Some("False") {
            object(
                "operate comes only after the gate is False",
                format!("operate/{id}, gate {:?}", version.gate),
            );
        }
        // Without the gate, a plain traffic controller does not know that the pod is out of service, and may add it
        // again.
        if (is_new || version.has_gate) && !version.holders.is_empty() {
            object(
                "operate is never there while a consumer holds the pod",
                format!("operate/{id}, {:?}", version.holders),
            );
        }
    }
}

fn check_gate(
    before: Option<&PodVersion>,
    version: &PodVersion,
    object: &mut impl FnMut(&'static str, String),
) {
    let turned_on = version.gate_is_on() && before.is_some_and(|before| !before.gate_is_on());
    if !turned_on {
        return;
    }
    for stage in [Stage::Preparing, Stage::Operate] {
        for id in before.into_iter().chain([version]).flat_map(|version| having(version, stage)) {
            object("the gate never turns True in the middle of an operation", format!("{stage}/{id}"));
        }
    }
}

fn check_available(
    before: Option<&PodVersion>,
    version: &PodVersion,
    object: &mut impl FnMut(&'static str, String),
) {
    if !version.is_available() {
        return;
    }
    for id in having(version, Stage::Preparing).chain(having(version, Stage::Operate)) {
        object("a pod under operation is never called available", format!("operation {id}"));
    }
    if before.is_some_and(PodVersion::is_available) {
        return;
    }
    let rule =
        "service-available comes only with the gate True, the pod Ready and all expected finalizers there";
    if version.has_gate && !version.gate_is_on() {
        object(rule, format!("gate {:?}", version.gate));
    }
    if !version.ready {
        object(rule, "not Ready".to_owned());
    }
    if !version.missing.is_empty() {
        object(rule, format!("missing {:?}", version.missing));
    }
}

/// A refused result waits for its check and has no other effect.
fn check_refused(version: &PodVersion, object: &mut impl FnMut(&'static str, String)) {
    for id in having(version, Stage::Rollback) {
        let has = |stage: Stage| version.labels.contains_key(&stage.key(id));
        if !has(Stage::Operated) {
            object("rollback is there only when the operator is done", format!("rollback/{id}"));
        }
        for stage in [Stage::PostChecked, Stage::Completing].into_iter().filter(|stage| has(*stage)) {
            object("a refused result is never accepted", format!("rollback/{id}, {stage}/{id}"));
        }
        if version.gate_is_on() || version.is_available() {
            object("a pod with a refused result is out of service", format!("rollback/{id}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn version(labels: &[String], gate: Option<&'static str>, holders: &[&str]) -> PodVersion {
        PodVersion {
            at_ms: 0.0,
            resource_version: String::new(),
            labels: labels.iter().map(|key| (key.clone(), "1".to_owned())).collect::<BTreeMap<_, _>>(),
            has_gate: true,
            gate,
            ready: true,
            holders: holders.iter().map(|holder| (*holder).to_owned()).collect(),
            missing: Vec::new(),
            terminating: false,
            ended: false,
            grace_period_seconds: None,
            image: None,
        }
    }

    fn history(versions: Vec<PodVersion>) -> PodHistory {
        let after_gaps = BTreeSet::new();
        PodHistory { name: "a".to_owned(), uid: "u".to_owned(), versions, after_gaps, gone_ms: None }
    }

    fn rules(versions: Vec<PodVersion>) -> Vec<&'static str> {
        check(&history(versions)).into_iter().map(|violation| violation.rule).collect()
    }

    fn at_work() -> Vec<String> {
        vec![Stage::Operating.key("x"), Stage::OperationType.key("x"), Stage::Operate.key("x")]
    }

    #[test]
    fn an_operation_out_of_service_is_right() {
        let preparing = [Stage::Operating.key("x"), Stage::OperationType.key("x"), Stage::Preparing.key("x")];
        let available = [keys::SERVICE_AVAILABLE.to_owned()];
        let versions = vec![
            version(&available, Some("True"), &["prot"]),
            version(&preparing, Some("True"), &["prot"]),
            version(&preparing, Some("False"), &["prot"]),
            version(&at_work(), Some("False"), &[]),
            version(&[Stage::Operated.key("x"), Stage::PostCheck.key("x")], Some("False"), &[]),
            version(&[Stage::Operated.key("x"), Stage::Completing.key("x")], Some("True"), &[]),
            version(&available, Some("True"), &["prot"]),
        ];
        let history = history(versions);
        assert_eq!(check(&history), []);
        assert_eq!(check_at_rest(&history), []);
    }

    #[test]
    fn each_rule_finds_its_breach() {
        assert!(rules(vec![version(&at_work(), Some("True"), &[])])[0].contains("gate is True"));
        assert!(rules(vec![version(&at_work(), None, &[])])[0].contains("after the gate is False"));
        assert!(rules(vec![version(&at_work(), Some("False"), &["prot"])])[0].contains("consumer holds"));
        let twice = [version(&at_work(), Some("False"), &[]), version(&[], Some("True"), &[])];
        assert!(rules(twice.to_vec())[0].contains("never turns True"));
        let available = [keys::SERVICE_AVAILABLE.to_owned()];
        assert!(
            rules(vec![version(&available, Some("False"), &[])])[0].contains("service-available comes only")
        );
        let both = [keys::SERVICE_AVAILABLE.to_owned(), Stage::Preparing.key("x")];
        assert!(rules(vec![version(&both, Some("True"), &[])])[0].contains("never called available"));
        let refused = |more: Stage| vec![Stage::Rollback.key("x"), Stage::Operated.key("x"), more.key("x")];
        assert_eq!(rules(vec![version(&refused(Stage::PostCheck), Some("False"), &[])]), Vec::<&str>::new());
        let refused_in = |gate, more| rules(vec![version(&refused(more), Some(gate), &[])]);
        assert!(refused_in("False", Stage::Completing)[0].contains("never accepted"));
        assert!(refused_in("False", Stage::PostChecked)[0].contains("never accepted"));
        assert!(refused_in("True", Stage::PostCheck)[0].contains("out of service"));
        let stray = [Stage::Rollback.key("x"), Stage::Operate.key("x")];
        assert!(rules(vec![version(&stray, Some("False"), &[])])[0].contains("operator is done"));
    }

    #[test]
    fn what_a_gap_hides_is_not_held_against_anybody() {
        let versions = [version(&at_work(), Some("False"), &[]), version(&[], Some("True"), &[])];
        let mut history = history(versions.to_vec());
        assert!(!check(&history).is_empty());
        history.after_gaps.insert(1);
        assert_eq!(check(&history), []);
        history.versions[1] = version(&at_work(), Some("True"), &[]);
        assert_eq!(check(&history).len(), 1, "what is wrong by itself is found");
    }

    #[test]
    fn a_pod_that_is_deleted_while_it_is_held_is_found() {
        let alive = version(&[], Some("True"), &["prot"]);
        let dying = |holders| PodVersion { terminating: true, ..version(&[], Some("False"), holders) };
        let held = |versions: &[PodVersion]| history(versions.to_vec()).held_when_deleted().to_vec();
        assert_eq!(held(std::slice::from_ref(&alive)), [""; 0]);
        assert_eq!(held(&[alive.clone(), dying(&[])]), [""; 0]);
        // A later release does not change what was allowed.
        assert_eq!(held(&[alive.clone(), dying(&["prot"]), dying(&[])]), ["prot"]);
        assert_eq!(held(&[alive, PodVersion { ended: true, ..dying(&["prot"]) }]), [""; 0]);
    }

    #[test]
    fn leftovers_are_found() {
        let left = [keys::SERVICE_AVAILABLE.to_owned(), keys::permission_key("update")];
        let found = check_at_rest(&history(vec![version(&left, Some("True"), &[])]));
        assert!(found[0].seen.contains("operation-permission"), "{found:?}");
        let found = check_at_rest(&history(vec![version(&[], Some("True"), &[])]));
        assert!(found[0].seen.contains("is not there"), "{found:?}");
    }
}
