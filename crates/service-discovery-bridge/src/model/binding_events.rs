//! The events of a binding: what has changed since the last one.

use std::time::Duration;

/// The shortest time between two events about the same. A change in between is reported then, if it lasts.
const PAUSE: Duration = Duration::from_secs(30);
/// Missing instances are a loss of data from this number, and this share in percent, of those that were shown.
const LOSS: (usize, usize) = (3, 20);

/// What events report about a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BindingFacts {
    /// Why the binding or its connection cannot be used.
    pub(crate) rejected: Option<String>,
    /// Why an address of the registry does not answer. `None` also while the registry is not called.
    pub(crate) unreachable: Option<String>,
    /// Why removals are held.
    pub(crate) held: Option<String>,
    /// Which pods are on lost nodes.
    pub(crate) lost: Option<String>,
    /// The numbers of instances that should be in service, and that the registry shows.
    pub(crate) wanted: usize,
    pub(crate) present: usize,
}

/// An event about a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BindingEvent {
    pub(crate) is_warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) note: String,
}

/// What was reported last of something that is a problem or not.
#[derive(Debug, Default)]
struct Topic {
    reported: bool,
    at: Option<Duration>,
}

impl Topic {
    /// Returns the event for the present state, if it was not reported.
    fn event(
        &mut self,
        now: Duration,
        problem: Option<&String>,
        (begin, end): (&'static str, &'static str),
        ended: &str,
    ) -> Option<BindingEvent> {
        let is_quiet = self.at.is_none_or(|at| now.saturating_sub(at) >= PAUSE);
        if self.reported == problem.is_some() || !is_quiet {
            return None;
        }
        (self.reported, self.at) = (problem.is_some(), Some(now));
        Some(match problem {
            Some(note) => BindingEvent { is_warning: true, reason: begin, note: note.clone() },
            None => BindingEvent { is_warning: false, reason: end, note: ended.to_owned() },
        })
    }
}

/// The events of a binding.
#[derive(Debug, Default)]
pub(crate) struct BindingEvents {
    rejected: Topic,
    unreachable: Topic,
    held: Topic,
    lost: Topic,
    /// Since when instances are registered again after a loss of data.
    restores: Option<Duration>,
    loss_at: Option<Duration>,
    /// Orphans that were removed and are not reported yet.
    orphans: usize,
    orphans_at: Option<Duration>,
}

impl BindingEvents {
    /// Starts with what was reported before: another replica may have kept the binding.
    pub(crate) fn after(before: &BindingFacts) -> Self {
        let topic = |problem: &Option<String>| Topic { reported: problem.is_some(), at: None };
        Self {
            rejected: topic(&before.rejected),
            unreachable: topic(&before.unreachable),
            held: topic(&before.held),
            ..Self::default()
        }
    }

    /// Returns the events of the present state.
    pub(crate) fn of(&mut self, facts: &BindingFacts, now: Duration) -> Vec<BindingEvent> {
        let BindingFacts { rejected, unreachable, held, lost, wanted, present } = facts;
        let mut events: Vec<BindingEvent> = [
            self.rejected.event(
                now,
                rejected.as_ref(),
                ("BindingRejected", "BindingAccepted"),
                "the binding and its connection are valid",
            ),
            self.unreachable.event(
                now,
                unreachable.as_ref(),
                ("RegistryUnreachable", "RegistryReachable"),
                "every address of the registry answers again",
            ),
            self.held.event(
                now,
                held.as_ref(),
                ("RemovalsHeld", "RemovalsReleased"),
                "no removals are held any more: they were released, or the pods are ready again",
            ),
            self.lost.event(
                now,
                lost.as_ref(),
                ("NodesLost", "NodesReport"),
                "no pod of the binding is on a node that does not report",
            ),
        ]
        .into_iter()
        .flatten()
        .collect();
        if let Some(since) = self.restores
            && present >= wanted
        {
            self.restores = None;
            events.push(BindingEvent {
                is_warning: false,
                reason: "InstancesRestored",
                note: format!(
                    "the registry shows all {wanted} instances again, after {:.1} s",
                    now.saturating_sub(since).as_secs_f64()
                ),
            });
        }
        let is_quiet = self.orphans_at.is_none_or(|at| now.saturating_sub(at) >= PAUSE);
        if self.orphans > 0 && is_quiet {
            self.orphans_at = Some(now);
            let count = std::mem::take(&mut self.orphans);
            events.push(BindingEvent {
                is_warning: false,
                reason: "OrphansRemoved",
                note: format!(
                    "{count} instances of the binding that belong to none of its pods were deregistered"
                ),
            });
        }
        events
    }

    /// Records that a comparison has found `missing` of the `shown` instances missing. Returns an event if that is a loss of
    /// the registry's data.
    pub(crate) fn missing(&mut self, missing: usize, shown: usize, now: Duration) -> Option<BindingEvent> {
        let is_quiet = self.loss_at.is_none_or(|at| now.saturating_sub(at) >= PAUSE);
        let (number, share) = LOSS;
        if missing < number || missing * 100 < shown * share || self.restores.is_some() || !is_quiet {
            return None;
        }
        (self.restores, self.loss_at) = (Some(now), Some(now));
        Some(BindingEvent {
            is_warning: true,
            reason: "RegistryLostInstances",
            note: format!(
                "{missing} of {shown} instances are not in the registry any more as they were registered; they are \
                 registered again, at most 1,000 a second"
            ),
        })
    }

    /// Records that orphans were removed.
    pub(crate) fn removed(&mut self, orphans: usize) {
        self.orphans += orphans;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn reasons(events: Vec<BindingEvent>) -> Vec<&'static str> {
        events.into_iter().map(|event| event.reason).collect()
    }

    fn down() -> BindingFacts {
        BindingFacts { unreachable: Some("no route".to_owned()), ..BindingFacts::default() }
    }

    #[test]
    fn each_change_is_reported_once() {
        let fine = BindingFacts::default();
        let mut events = BindingEvents::after(&fine);
        assert!(events.of(&fine, at(0)).is_empty());
        let begun = events.of(&down(), at(1));
        assert_eq!(
            begun,
            [BindingEvent { is_warning: true, reason: "RegistryUnreachable", note: "no route".to_owned() }]
        );
        assert!(events.of(&down(), at(100)).is_empty());
        assert_eq!(reasons(events.of(&fine, at(101))), ["RegistryReachable"]);
        let both =
            BindingFacts { rejected: Some("x".to_owned()), held: Some("y".to_owned()), ..fine.clone() };
        assert_eq!(reasons(events.of(&both, at(102))), ["BindingRejected", "RemovalsHeld"]);
        assert_eq!(reasons(events.of(&fine, at(140))), ["BindingAccepted", "RemovalsReleased"]);
        let lost = BindingFacts { lost: Some("1 pod".to_owned()), ..fine.clone() };
        assert_eq!(reasons(events.of(&lost, at(141))), ["NodesLost"]);
        assert_eq!(reasons(events.of(&fine, at(180))), ["NodesReport"]);
    }

    #[test]
    fn a_registry_that_comes_and_goes_is_reported_at_intervals_and_in_the_end_rightly() {
        let mut events = BindingEvents::after(&BindingFacts::default());
        let mut seen = Vec::new();
        for second in 0..100 {
            let facts = if second % 2 == 0 { down() } else { BindingFacts::default() };
            seen.extend(reasons(events.of(&facts, at(second))));
        }
        assert!(seen.len() <= 4, "{seen:?}");
        seen.extend(reasons(events.of(&BindingFacts::default(), at(200))));
        assert_eq!(seen.last(), Some(&"RegistryReachable"), "{seen:?}");
    }

    #[test]
    fn what_another_replica_has_reported_is_not_reported_again() {
        let mut events = BindingEvents::after(&down());
        assert!(events.of(&down(), at(0)).is_empty());
        assert_eq!(reasons(events.of(&BindingFacts::default(), at(1))), ["RegistryReachable"]);
    }

    #[test]
    fn a_loss_of_data_has_a_begin_and_an_end() {
        let mut events = BindingEvents::default();
        assert_eq!(events.missing(2, 5, at(0)), None, "somebody has removed two by hand");
        assert_eq!(events.missing(19, 100, at(0)), None);
        let begun = events.missing(100, 100, at(1)).unwrap();
        assert!(begun.is_warning && begun.note.starts_with("100 of 100 instances"), "{begun:?}");
        assert_eq!(events.missing(50, 100, at(2)), None);
        let facts = |present| BindingFacts { wanted: 100, present, ..BindingFacts::default() };
        assert!(events.of(&facts(99), at(3)).is_empty());
        let ended = events.of(&facts(100), at(4));
        assert_eq!(ended[0].note, "the registry shows all 100 instances again, after 3.0 s");
        assert!(events.of(&facts(100), at(5)).is_empty());
    }

    #[test]
    fn removed_orphans_are_counted_together() {
        let mut events = BindingEvents::default();
        events.removed(1);
        assert_eq!(reasons(events.of(&BindingFacts::default(), at(0))), ["OrphansRemoved"]);
        events.removed(2);
        events.removed(3);
        assert!(events.of(&BindingFacts::default(), at(29)).is_empty());
        assert!(events.of(&BindingFacts::default(), at(30))[0].note.starts_with("5 instances"));
    }
}
