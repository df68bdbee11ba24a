//! The summary of all pods.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::confirm::Confirm;
use super::write::{PodReleaseOutcome, PodReleaseResult};
use crate::terminal::safe_line;

/// Counts pods over several passes. Changes are accumulated; the states of pods are those of the last pass.
#[derive(Debug, Default)]
pub(super) struct ReleaseTally {
    checked: usize,
    released: BTreeSet<String>,
    still_terminating: BTreeSet<String>,
    other_finalizers: BTreeMap<String, Vec<String>>,
    offline: BTreeSet<String>,
    failed: BTreeMap<String, String>,
    /// Names that no pod has.
    missing: BTreeSet<String>,
    lines: PodLines,
}

/// Where the lines about single pods go.
#[derive(Debug, Default)]
enum PodLines {
    #[default]
    Stdout,
    /// To the user who is shown a plan.
    User(Confirm),
    Nowhere,
}

impl ReleaseTally {
    /// Returns the tally of a plan for a user.
    pub(super) fn shown_to(user: Confirm) -> Self {
        Self { lines: PodLines::User(user), ..Self::default() }
    }

    /// Returns a tally that prints nothing.
    pub(super) fn quiet() -> Self {
        Self { lines: PodLines::Nowhere, ..Self::default() }
    }

    /// Returns whether the same pods are released in both.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.released == other.released
    }

    pub(super) fn begin_pass(&mut self) {
        self.checked = 0;
        self.still_terminating.clear();
        self.other_finalizers.clear();
        self.offline.clear();
        self.failed.clear();
    }

    pub(super) fn add(&mut self, outcome: PodReleaseOutcome) {
        let PodReleaseOutcome { pod, uid, release, is_terminating, result } = outcome;
        self.checked += 1;
        match result {
            PodReleaseResult::Gone => return,
            PodReleaseResult::Failed(why) => {
                self.failed.insert(pod, why);
                return;
            }
            PodReleaseResult::Released => {
                if self.released.insert(uid.clone()) {
                    let line = format!("{pod}: {}\n", describe(&release));
                    match self.lines {
                        PodLines::Stdout => print!("{line}"),
                        // A closed terminal cannot answer, either.
                        PodLines::User(user) => drop(user.show(&line)),
                        PodLines::Nowhere => {}
                    }
                }
            }
            PodReleaseResult::Untouched => {}
        }
        // The deletion of other pods is not Podward's concern.
        if is_terminating && (self.released.contains(&uid) || !release.third_parties.is_empty()) {
            self.still_terminating.insert(pod.clone());
        }
        if release.stays_offline {
            self.offline.insert(pod.clone());
        }
        if !release.third_parties.is_empty() {
            self.other_finalizers.insert(pod, release.third_parties);
        }
    }

    /// Adds a name that was given, and that no pod has.
    pub(super) fn add_missing(&mut self, name: String) {
        if !matches!(self.lines, PodLines::Nowhere) {
            eprintln!("there is no pod {}: check its name and namespace", safe_line(&name));
        }
        self.missing.insert(name);
    }

    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty() || !self.missing.is_empty()
    }

    /// Returns the last lines of the output.
    pub(super) fn summary(&self, dry_run: bool) -> String {
        let mut text = String::new();
        for (pod, finalizers) in &self.other_finalizers {
            let _ = writeln!(text, "{pod}: kept finalizers of other controllers: {}", finalizers.join(", "));
        }
        for pod in &self.offline {
            let _ = writeln!(
                text,
                "{pod}: stays out of service because of its label podopslifecycle.kusionstack.io/stay-offline; set its \
                 readiness gate to True, or replace the pod"
            );
        }
        for pod in &self.still_terminating {
            let _ = writeln!(text, "{pod}: still terminating");
        }
        for (pod, why) in &self.failed {
            let _ = writeln!(text, "{pod}: could not be released: {}", safe_line(why));
        }
        let _ = writeln!(
            text,
            "pods checked: {}, {}: {}, still terminating: {}, with finalizers of other controllers: {}, failed: {}",
            self.checked,
            if dry_run { "to be released" } else { "released" },
            self.released.len(),
            self.still_terminating.len(),
            self.other_finalizers.len(),
            self.failed.len(),
        );
        text
    }
}

/// Describes what was removed from a pod.
fn describe(release: &podward_core::release::Release) -> String {
    let mut done = Vec::new();
    if !release.finalizers.is_empty() {
        done.push(format!("finalizers {} removed", release.finalizers.join(", ")));
    }
    if release.opens_gate {
        done.push("readiness gate set to True".to_owned());
    }
    if !release.interrupted.is_empty() {
        done.push(format!("operation {} interrupted", release.interrupted.join(", ")));
    }
    if let Some(dropped) = &release.dropped_request {
        let by = dropped
            .request
            .as_ref()
            .map(|request| format!(" requested by {}", safe_line(&request.requested_by)));
        done.push(format!("deletion{} cancelled: delete the pod again", by.unwrap_or_default()));
    }
    let removed = release.labels.len() + release.annotations.len() + usize::from(release.removes_condition);
    if removed > 0 {
        done.push(format!("{removed} labels, annotations and conditions removed"));
    }
    done.join(", ")
}

#[cfg(test)]
mod tests {
    use podward_core::release::{DroppedRequest, Release};

    use super::*;

    fn outcome(pod: &str, result: PodReleaseResult) -> PodReleaseOutcome {
        let (pod, uid) = (pod.to_owned(), pod.to_owned());
        PodReleaseOutcome { pod, uid, release: Release::default(), is_terminating: false, result }
    }

    #[test]
    fn who_has_requested_a_deletion_does_not_control_the_terminal() {
        let request = serde_json::json!({"kind": "Delete", "requestedBy": "j\u{1b}[2J\nx", "requestedAt": 0});
        let request = serde_json::from_value(request).unwrap();
        let dropped_request = Some(DroppedRequest { request: Some(request) });
        let release = Release { dropped_request, ..Release::default() };
        assert_eq!(describe(&release), "deletion requested by j\\u{1b}[2J x cancelled: delete the pod again");
    }

    #[test]
    fn states_are_those_of_the_last_pass_and_changes_accumulate() {
        let mut tally = ReleaseTally::default();
        tally.begin_pass();
        let opened = Release { opens_gate: true, ..Release::default() };
        tally.add(PodReleaseOutcome {
            release: opened,
            is_terminating: true,
            ..outcome("shop/a", PodReleaseResult::Released)
        });
        tally.add(outcome("shop/b", PodReleaseResult::Failed("refused".to_owned())));
        assert!(tally.has_failed());
        assert!(tally.summary(false).contains("shop/b: could not be released: refused"));
        tally.begin_pass();
        let third_parties = vec!["prot.x/1".to_owned()];
        let held = Release { third_parties, stays_offline: true, ..Release::default() };
        tally.add(PodReleaseOutcome {
            is_terminating: true,
            ..outcome("shop/a", PodReleaseResult::Untouched)
        });
        tally.add(PodReleaseOutcome { release: held, ..outcome("shop/b", PodReleaseResult::Untouched) });
        assert!(!tally.has_failed());
        let summary = tally.summary(false);
        assert!(summary.contains("shop/b: kept finalizers of other controllers: prot.x/1\n"), "{summary}");
        assert!(summary.contains("shop/b: stays out of service"), "{summary}");
        let last = "pods checked: 2, released: 1, still terminating: 1, with finalizers of other controllers: 1, \
                    failed: 0\n";
        assert!(summary.ends_with(last), "{summary}");
    }
}
