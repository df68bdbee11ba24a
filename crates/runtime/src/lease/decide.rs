//! Decides what a candidate does next: a pure function of the Lease that it has observed, and when.

use std::time::Duration;

use tokio::time::Instant;

use super::params::LeaseParams;

/// The Lease as it was last observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObservedLease {
    /// `spec.holderIdentity`; empty if there is no holder.
    pub(super) holder: String,
    /// `metadata.resourceVersion`.
    pub(super) version: String,
    /// How long the holder may hold it after a renewal.
    pub(super) duration: Duration,
    /// The number of changes of its holder.
    pub(super) transitions: i32,
    /// When this replica first observed this version, by its own clock.
    pub(super) at: Instant,
}

impl ObservedLease {
    /// True if `self` is an older version than `other`. A version that is not a number is never older.
    pub(super) fn is_older_than(&self, other: &ObservedLease) -> bool {
        let number = |version: &str| version.parse::<u64>().ok();
        matches!((number(&self.version), number(&other.version)), (Some(ours), Some(theirs)) if ours < theirs)
    }
}

/// The next action of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaseAction {
    /// Wait until then, or until the Lease changes.
    Wait(Instant),
    /// Stop leading.
    StepDown,
    /// Write the Lease.
    LeaseWrite(LeaseWrite),
}

/// A write to the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaseWrite {
    /// Create it.
    Create,
    /// Become the holder.
    Acquire,
    /// Stay the holder.
    Renew,
}

/// Returns the next action. `observed` is the Lease; `None` if there is none. `renewed` is when this replica, as the
/// leader, began its last successful write of it; `None` if it does not lead.
pub(super) fn decide(
    observed: Option<&ObservedLease>,
    renewed: Option<Instant>,
    now: Instant,
    params: &LeaseParams,
) -> LeaseAction {
    let is_ours = observed.is_some_and(|lease| lease.holder == params.identity);
    let overdue = renewed.is_some_and(|renewed| now >= renewed + params.renew_deadline());
    if renewed.is_some() && (!is_ours || overdue) {
        return LeaseAction::StepDown;
    }
    let Some(lease) = observed else {
        return LeaseAction::LeaseWrite(LeaseWrite::Create);
    };
    match renewed {
        Some(renewed) => wait_until(renewed + params.renew_every(), now, LeaseWrite::Renew),
        // Where this replica holds it but has stepped down, no other replica can acquire it sooner.
        None if is_ours || lease.holder.is_empty() || params.is_predecessor(&lease.holder) => {
            LeaseAction::LeaseWrite(LeaseWrite::Acquire)
        }
        None => wait_until(lease.at + lease.duration, now, LeaseWrite::Acquire),
    }
}

fn wait_until(due: Instant, now: Instant, write: LeaseWrite) -> LeaseAction {
    if now >= due { LeaseAction::LeaseWrite(write) } else { LeaseAction::Wait(due) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn params() -> LeaseParams {
        let [namespace, name, identity] = ["n", "l", "me"].map(str::to_owned);
        let predecessors = Some("me-".to_owned());
        LeaseParams { namespace, name, identity, predecessors, duration: 15 * SECOND, address: None }
    }

    fn held_by(holder: &str, at: Instant) -> ObservedLease {
        ObservedLease {
            holder: holder.to_owned(),
            version: "7".to_owned(),
            duration: 12 * SECOND,
            transitions: 3,
            at,
        }
    }

    #[test]
    fn a_free_lease_is_acquired_at_once() {
        let now = Instant::now();
        assert_eq!(decide(None, None, now, &params()), LeaseAction::LeaseWrite(LeaseWrite::Create));
        assert_eq!(
            decide(Some(&held_by("", now)), None, now, &params()),
            LeaseAction::LeaseWrite(LeaseWrite::Acquire)
        );
    }

    #[test]
    fn the_holders_duration_counts_from_when_its_renewal_was_observed() {
        let seen = Instant::now();
        let other = held_by("other", seen);
        let at = |seconds: u32| decide(Some(&other), None, seen + seconds * SECOND, &params());
        assert_eq!(at(0), LeaseAction::Wait(seen + 12 * SECOND));
        assert_eq!(at(11), LeaseAction::Wait(seen + 12 * SECOND));
        assert_eq!(at(12), LeaseAction::LeaseWrite(LeaseWrite::Acquire));
    }

    #[test]
    fn the_leader_renews_each_third_and_steps_down_before_others_may_acquire() {
        let renewed = Instant::now();
        let ours = held_by("me", renewed + SECOND);
        let at = |seconds: u32| decide(Some(&ours), Some(renewed), renewed + seconds * SECOND, &params());
        assert_eq!(at(4), LeaseAction::Wait(renewed + 5 * SECOND));
        assert_eq!(at(5), LeaseAction::LeaseWrite(LeaseWrite::Renew));
        assert_eq!(at(9), LeaseAction::LeaseWrite(LeaseWrite::Renew));
        assert_eq!(at(10), LeaseAction::StepDown);
    }

    #[test]
    fn the_leader_steps_down_when_the_lease_is_deleted_or_has_another_holder() {
        let now = Instant::now();
        assert_eq!(decide(None, Some(now), now, &params()), LeaseAction::StepDown);
        for holder in ["other", ""] {
            assert_eq!(decide(Some(&held_by(holder, now)), Some(now), now, &params()), LeaseAction::StepDown);
        }
    }

    #[test]
    fn a_lease_that_it_still_holds_after_stepping_down_is_acquired_again() {
        let now = Instant::now();
        assert_eq!(
            decide(Some(&held_by("me", now)), None, now, &params()),
            LeaseAction::LeaseWrite(LeaseWrite::Acquire)
        );
    }

    #[test]
    fn the_lease_of_an_earlier_process_of_the_container_is_free() {
        let now = Instant::now();
        let acquired = LeaseAction::LeaseWrite(LeaseWrite::Acquire);
        let next = |params: &LeaseParams| decide(Some(&held_by("me-1", now)), None, now, params);
        assert_eq!(next(&params()), acquired);
        assert_ne!(next(&LeaseParams { predecessors: None, ..params() }), acquired);
        let leading = decide(Some(&held_by("me-1", now)), Some(now), now, &params());
        assert_eq!(leading, LeaseAction::StepDown, "it has started after this process");
    }

    #[test]
    fn only_smaller_numbers_are_older() {
        let version =
            |version: &str| ObservedLease { version: version.to_owned(), ..held_by("me", Instant::now()) };
        assert!(version("99").is_older_than(&version("100")));
        for (a, b) in [("100", "99"), ("7", "7"), ("x", "7"), ("7", "x")] {
            assert!(!version(a).is_older_than(&version(b)), "{a} {b}");
        }
    }

    #[test]
    fn the_lease_has_whole_seconds() {
        for (millis, seconds) in [(1, 1), (1000, 1), (1001, 2), (15_000, 15)] {
            let params = LeaseParams { duration: Duration::from_millis(millis), ..params() };
            assert_eq!(params.duration_seconds(), seconds);
        }
    }
}
