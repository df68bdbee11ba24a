//! What a candidate does next: a pure function of what it has seen, and when.

use std::time::Duration;

use tokio::time::Instant;

use super::LeaseParams;

/// The lease as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Observed {
    /// Empty when nobody holds it.
    pub(super) holder: String,
    pub(super) version: String,
    /// As the holder has written it.
    pub(super) duration: Duration,
    pub(super) transitions: i32,
    /// When this version was first seen, by this replica's clock.
    pub(super) at: Instant,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Wait(Duration),
    Create,
    Acquire { version: String, transitions: i32 },
    Renew { version: String },
    StepDown,
}

/// `renewed` is when this replica last wrote the lease as its holder, since it leads.
pub(super) fn decide(
    observed: Option<&Observed>,
    renewed: Option<Instant>,
    now: Instant,
    params: &LeaseParams,
) -> Action {
    if renewed.is_some_and(|renewed| now >= renewed + params.give_up_after()) {
        return Action::StepDown;
    }
    let Some(observed) = observed else { return Action::Create };
    let acquire = || Action::Acquire { version: observed.version.clone(), transitions: observed.transitions };
    if observed.holder == params.identity {
        return match renewed {
            Some(renewed) if now < renewed + params.renew_every() => Action::Wait(renewed + params.renew_every() - now),
            Some(_) => Action::Renew { version: observed.version.clone() },
            // Held under our name by an earlier life of this replica.
            None => acquire(),
        };
    }
    if observed.holder.is_empty() {
        return acquire();
    }
    let expires = observed.at + observed.duration;
    if now >= expires { acquire() } else { Action::Wait(expires - now) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params() -> LeaseParams {
        LeaseParams {
            namespace: "n".to_owned(),
            name: "l".to_owned(),
            identity: "me".to_owned(),
            duration: Duration::from_secs(15),
        }
    }

    fn held_by(holder: &str, at: Instant) -> Observed {
        Observed {
            holder: holder.to_owned(),
            version: "7".to_owned(),
            duration: Duration::from_secs(15),
            transitions: 3,
            at,
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_free_lease_is_taken_at_once() {
        let now = Instant::now();
        assert_eq!(decide(None, None, now, &params()), Action::Create);
        let taken = Action::Acquire { version: "7".to_owned(), transitions: 3 };
        assert_eq!(decide(Some(&held_by("", now)), None, now, &params()), taken);
        assert_eq!(decide(Some(&held_by("me", now)), None, now, &params()), taken);
    }

    #[test]
    fn anothers_lease_is_taken_when_it_has_run_out_by_our_clock() {
        let seen = Instant::now();
        let lease = held_by("other", seen);
        assert_eq!(decide(Some(&lease), None, seen + 10 * SECOND, &params()), Action::Wait(5 * SECOND));
        assert!(matches!(decide(Some(&lease), None, seen + 15 * SECOND, &params()), Action::Acquire { .. }));
    }

    #[test]
    fn the_leader_renews_and_steps_down_in_time() {
        let renewed = Instant::now();
        let lease = held_by("me", renewed);
        let at = |seconds: u32| decide(Some(&lease), Some(renewed), renewed + seconds * SECOND, &params());
        assert_eq!(at(1), Action::Wait(4 * SECOND));
        assert_eq!(at(5), Action::Renew { version: "7".to_owned() });
        assert_eq!(at(10), Action::StepDown, "five seconds before others may take it");
    }
}
