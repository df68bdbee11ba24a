//! What a candidate does next: a pure function of what it has seen, and when.

use std::time::Duration;

use tokio::time::Instant;

use super::LeaseParams;

/// The lease as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Observed {
    /// Empty when nobody holds it.
    pub(super) holder: String,
    /// `metadata.resourceVersion`.
    pub(super) version: String,
    /// For how long the holder has claimed it.
    pub(super) duration: Duration,
    /// How often it has changed hands.
    pub(super) transitions: i32,
    /// When this version was first seen, by this replica's clock.
    pub(super) at: Instant,
}

impl Observed {
    /// Whether `self` is an older version than `other`. Versions that aren't numbers count as newer: they are as they come.
    pub(super) fn is_older_than(&self, other: &Observed) -> bool {
        let number = |version: &str| version.parse::<u64>().ok();
        matches!((number(&self.version), number(&other.version)), (Some(ours), Some(theirs)) if ours < theirs)
    }
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing, until then or until something is seen.
    Wait(Instant),
    /// Lead no more.
    StepDown,
    /// Write.
    Write(Write),
}

/// A write to the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// There is none yet.
    Create,
    /// Become the holder.
    Acquire,
    /// Stay the holder.
    Renew,
}

/// `observed` is the lease, `None` if there is none. `renewed` is when this replica, being the leader, began its last successful
/// write of it.
pub(super) fn decide(
    observed: Option<&Observed>,
    renewed: Option<Instant>,
    now: Instant,
    params: &LeaseParams,
) -> Action {
    let is_ours = observed.is_some_and(|lease| lease.holder == params.identity);
    let overdue = renewed.is_some_and(|renewed| now >= renewed + params.renew_deadline());
    if renewed.is_some() && (!is_ours || overdue) {
        return Action::StepDown;
    }
    let Some(lease) = observed else {
        return Action::Write(Write::Create);
    };
    match renewed {
        Some(renewed) => wait_until(renewed + params.renew_every(), now, Write::Renew),
        // Ours by name, but given up: nobody else can have it sooner than we can.
        None if is_ours || lease.holder.is_empty() => Action::Write(Write::Acquire),
        None => wait_until(lease.at + lease.duration, now, Write::Acquire),
    }
}

fn wait_until(due: Instant, now: Instant, write: Write) -> Action {
    if now >= due { Action::Write(write) } else { Action::Wait(due) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn params() -> LeaseParams {
        let [namespace, name, identity] = ["n", "l", "me"].map(str::to_owned);
        LeaseParams { namespace, name, identity, duration: 15 * SECOND, address: None }
    }

    fn held_by(holder: &str, at: Instant) -> Observed {
        Observed {
            holder: holder.to_owned(),
            version: "7".to_owned(),
            duration: 12 * SECOND,
            transitions: 3,
            at,
        }
    }

    #[test]
    fn a_free_lease_is_taken_at_once() {
        let now = Instant::now();
        assert_eq!(decide(None, None, now, &params()), Action::Write(Write::Create));
        assert_eq!(decide(Some(&held_by("", now)), None, now, &params()), Action::Write(Write::Acquire));
    }

    #[test]
    fn the_holders_duration_counts_from_when_we_saw_its_renewal() {
        let seen = Instant::now();
        let other = held_by("other", seen);
        let at = |seconds: u32| decide(Some(&other), None, seen + seconds * SECOND, &params());
        assert_eq!(at(0), Action::Wait(seen + 12 * SECOND));
        assert_eq!(at(11), Action::Wait(seen + 12 * SECOND));
        assert_eq!(at(12), Action::Write(Write::Acquire));
    }

    #[test]
    fn the_leader_renews_each_third_and_steps_down_before_others_may_take_over() {
        let renewed = Instant::now();
        let ours = held_by("me", renewed + SECOND);
        let at = |seconds: u32| decide(Some(&ours), Some(renewed), renewed + seconds * SECOND, &params());
        assert_eq!(at(4), Action::Wait(renewed + 5 * SECOND));
        assert_eq!(at(5), Action::Write(Write::Renew));
        assert_eq!(at(9), Action::Write(Write::Renew));
        assert_eq!(at(10), Action::StepDown);
    }

    #[test]
    fn the_leader_steps_down_when_the_lease_is_gone_or_anothers() {
        let now = Instant::now();
        assert_eq!(decide(None, Some(now), now, &params()), Action::StepDown);
        for holder in ["other", ""] {
            assert_eq!(decide(Some(&held_by(holder, now)), Some(now), now, &params()), Action::StepDown);
        }
    }

    #[test]
    fn what_it_gave_up_but_still_holds_by_name_it_takes_again() {
        let now = Instant::now();
        assert_eq!(decide(Some(&held_by("me", now)), None, now, &params()), Action::Write(Write::Acquire));
    }

    #[test]
    fn only_smaller_numbers_are_older() {
        let version =
            |version: &str| Observed { version: version.to_owned(), ..held_by("me", Instant::now()) };
        assert!(version("99").is_older_than(&version("100")));
        for (a, b) in [("100", "99"), ("7", "7"), ("x", "7"), ("7", "x")] {
            assert!(!version(a).is_older_than(&version(b)), "{a} {b}");
        }
    }

    #[test]
    fn the_wire_has_whole_seconds() {
        for (millis, seconds) in [(1, 1), (1000, 1), (1001, 2), (15_000, 15)] {
            let params = LeaseParams { duration: Duration::from_millis(millis), ..params() };
            assert_eq!(params.wire_seconds(), seconds);
        }
    }
}
