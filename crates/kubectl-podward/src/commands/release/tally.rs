//! What became of all pods, for people.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::write::{Ended, Outcome};

/// Counts pods over several passes. What was done is kept, what a pod is like is as the last pass saw it.
#[derive(Debug, Default)]
pub(super) struct Tally {
    looked_at: usize,
    released: BTreeSet<String>,
    still_terminating: BTreeSet<String>,
    third_parties: BTreeMap<String, Vec<String>>,
    offline: BTreeSet<String>,
    failed: BTreeMap<String, String>,
}

impl Tally {
    pub(super) fn begin_pass(&mut self) {
        self.looked_at = 0;
        self.still_terminating.clear();
        self.third_parties.clear();
        self.offline.clear();
        self.failed.clear();
    }

    pub(super) fn add(&mut self, outcome: Outcome) {
        let Outcome { pod, uid, release, is_terminating, ended } = outcome;
        self.looked_at += 1;
        match ended {
            Ended::Gone => return,
            Ended::Failed(why) => {
                self.failed.insert(pod, why);
                return;
            }
            Ended::Released => {
                if self.released.insert(uid.clone()) {
                    println!("{pod}: {}", words(&release));
                }
            }
            Ended::Untouched => {}
        }
        // Others are deleted as ever.
        if is_terminating && (self.released.contains(&uid) || !release.third_parties.is_empty()) {
            self.still_terminating.insert(pod.clone());
        }
        if release.stays_offline {
            self.offline.insert(pod.clone());
        }
        if !release.third_parties.is_empty() {
            self.third_parties.insert(pod, release.third_parties);
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// The last lines of what is printed.
    pub(super) fn summary(&self, dry_run: bool) -> String {
        let mut text = String::new();
        for (pod, finalizers) in &self.third_parties {
            let _ = writeln!(text, "{pod}: left to their owners: finalizers {}", finalizers.join(", "));
        }
        for pod in &self.offline {
            let _ = writeln!(
                text,
                "{pod}: stays out of service, as its label podopslifecycle.kusionstack.io/stay-offline says; its gate has to be \
                 turned on by hand, or the pod made anew"
            );
        }
        for pod in &self.still_terminating {
            let _ = writeln!(text, "{pod}: still terminating");
        }
        for (pod, why) in &self.failed {
            let _ = writeln!(text, "{pod}: could not be released: {why}");
        }
        let _ = writeln!(
            text,
            "pods looked at: {}, {}: {}, still terminating: {}, with finalizers of third parties: {}, failed: {}",
            self.looked_at,
            if dry_run { "to be released" } else { "released" },
            self.released.len(),
            self.still_terminating.len(),
            self.third_parties.len(),
            self.failed.len(),
        );
        text
    }
}

fn words(release: &podward_core::release::Release) -> String {
    let mut done = Vec::new();
    if !release.finalizers.is_empty() {
        done.push(format!("finalizers {} removed", release.finalizers.join(", ")));
    }
    if release.opens_gate {
        done.push("gate turned on".to_owned());
    }
    if !release.interrupted.is_empty() {
        done.push(format!("operation {} interrupted", release.interrupted.join(", ")));
    }
    if let Some(dropped) = &release.dropped_wish {
        let by = dropped.wish.as_ref().map(|wish| format!(" that {} asked for", wish.requested_by));
        done.push(format!("deletion{} dropped: delete it again", by.unwrap_or_default()));
    }
    let texts = release.labels.len() + release.annotations.len() + usize::from(release.untells);
    if texts > 0 {
        done.push(format!("{texts} labels, annotations and conditions removed"));
    }
    done.join(", ")
}

#[cfg(test)]
mod tests {
    use podward_core::release::Release;

    use super::*;

    fn outcome(pod: &str, ended: Ended) -> Outcome {
        let (pod, uid) = (pod.to_owned(), pod.to_owned());
        Outcome { pod, uid, release: Release::default(), is_terminating: false, ended }
    }

    #[test]
    fn only_the_last_pass_counts_but_for_what_was_done() {
        let mut tally = Tally::default();
        tally.begin_pass();
        let opened = Release { opens_gate: true, ..Release::default() };
        tally.add(Outcome { release: opened, is_terminating: true, ..outcome("shop/a", Ended::Released) });
        tally.add(outcome("shop/b", Ended::Failed("refused".to_owned())));
        assert!(tally.has_failed());
        assert!(tally.summary(false).contains("shop/b: could not be released: refused"));
        tally.begin_pass();
        let third_parties = vec!["prot.x/1".to_owned()];
        let held = Release { third_parties, stays_offline: true, ..Release::default() };
        tally.add(Outcome { is_terminating: true, ..outcome("shop/a", Ended::Untouched) });
        tally.add(Outcome { release: held, ..outcome("shop/b", Ended::Untouched) });
        assert!(!tally.has_failed());
        let summary = tally.summary(false);
        assert!(summary.contains("shop/b: left to their owners: finalizers prot.x/1\n"), "{summary}");
        assert!(summary.contains("shop/b: stays out of service"), "{summary}");
        let last = "pods looked at: 2, released: 1, still terminating: 1, with finalizers of third parties: 1, failed: 0\n";
        assert!(summary.ends_with(last), "{summary}");
    }
}
