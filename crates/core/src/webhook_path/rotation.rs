//! The rotation of the secret, as a function of the stored objects and the time.

use std::time::Duration;

use super::secret::PathSecret;
use super::stored::{RetiringSecret, UpcomingSecret, WebhookPathState};

/// The times of the rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationTimes {
    /// The time for which a secret is used. At least three times the overlap.
    pub interval: Duration,
    /// The time for which a new secret is accepted before it is used, and an old one after it was last used.
    pub overlap: Duration,
}

/// The state that is to be stored, and when to look again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRotation {
    /// The new state. It may equal the stored one.
    pub state: WebhookPathState,
    /// Why it differs from the stored one. `None` if it does not.
    pub change: Option<&'static str>,
    /// When the next step is due, in seconds since 1970. `None` if it waits for a change of an object.
    pub next_step: Option<u64>,
}

/// Returns the state to store at the time `now`, in seconds since 1970.
///
/// `stored` is the state in the Secret, `None` if there is none or it can't be read. `used` are the secrets in the paths
/// of the entries of both webhook configurations. `random` returns a new secret.
///
/// Store the state first, then write its current secret to the entries. At most one step is taken, so call it again
/// after each write.
pub fn rotate(
    stored: Option<&WebhookPathState>,
    used: &[PathSecret],
    now: u64,
    times: RotationTimes,
    random: impl FnOnce() -> PathSecret,
) -> PathRotation {
    let (state, change) = match stored {
        None => (recovered(used, now, random), Some("there was none that could be used")),
        Some(stored) => step(stored, used, now, times, random),
    };
    let next_step = next_step(&state, times);
    PathRotation { state, change, next_step }
}

/// Returns the state after the Secret was lost, or at the first start. The secret that the entries use remains the
/// current one, and its replacement begins.
fn recovered(used: &[PathSecret], now: u64, random: impl FnOnce() -> PathSecret) -> WebhookPathState {
    let Some(current) = used.first() else {
        return WebhookPathState { current: random(), since: now, next: None, previous: None };
    };
    let other = used.iter().find(|secret| *secret != current);
    WebhookPathState {
        current: current.clone(),
        since: now,
        next: Some(UpcomingSecret { secret: random(), since: now }),
        previous: other.map(|secret| RetiringSecret { secret: secret.clone(), until: None }),
    }
}

fn step(
    stored: &WebhookPathState,
    used: &[PathSecret],
    now: u64,
    times: RotationTimes,
    random: impl FnOnce() -> PathSecret,
) -> (WebhookPathState, Option<&'static str>) {
    let overlap = times.overlap.as_secs();
    let mut state = stored.clone();
    // A time that lies in the future was written by a clock that was wrong, or with a longer overlap. It must not stop
    // the rotation.
    let mut is_wrong = state.since > now.saturating_add(overlap);
    state.since = if is_wrong { now } else { state.since };
    if let Some(next) = state.next.as_mut().filter(|next| next.since > now.saturating_add(overlap)) {
        (next.since, is_wrong) = (now, true);
    }
    if let Some(RetiringSecret { until: Some(until), .. }) = state.previous.as_mut()
        && *until > now.saturating_add(2 * overlap)
    {
        (*until, is_wrong) = (end_of_previous(state.since, now, overlap), true);
    }
    if is_wrong {
        return (state, Some("a time in it was too far in the future"));
    }
    if let Some(previous) = &mut state.previous {
        return match (used.contains(&previous.secret), previous.until) {
            (false, Some(until)) if until <= now => {
                state.previous = None;
                (state, Some("the previous secret is not accepted any more"))
            }
            (false, None) => {
                previous.until = Some(end_of_previous(state.since, now, overlap));
                (state, Some("no entry uses the previous secret any more"))
            }
            (true, Some(_)) => {
                previous.until = None;
                (state, Some("an entry uses the previous secret again"))
            }
            (true, None) | (false, Some(_)) => (state, None),
        };
    }
    match state.next.take() {
        Some(next) if next.since.saturating_add(overlap) <= now => {
            let previous = RetiringSecret { secret: state.current, until: None };
            let state =
                WebhookPathState { current: next.secret, since: now, next: None, previous: Some(previous) };
            (state, Some("the next secret is used from now on"))
        }
        None if state.since.saturating_add(times.interval.as_secs()) <= now => {
            state.next = Some(UpcomingSecret { secret: random(), since: now });
            (state, Some("the next secret is accepted from now on"))
        }
        waiting => {
            state.next = waiting;
            (state, None)
        }
    }
}

/// Returns until when the previous secret is accepted, if no entry uses it at the time `now` and the current one is used
/// since `since`. For an overlap after `since`, a replica that does not know the current secret yet may write the
/// previous one to an entry that has lost its path. This has to be known before the previous secret ends.
fn end_of_previous(since: u64, now: u64, overlap: u64) -> u64 {
    now.saturating_add(overlap).max(since.saturating_add(2 * overlap))
}

fn next_step(state: &WebhookPathState, times: RotationTimes) -> Option<u64> {
    match (&state.previous, &state.next) {
        (Some(previous), _) => previous.until,
        (None, Some(next)) => Some(next.since.saturating_add(times.overlap.as_secs())),
        (None, None) => Some(state.since.saturating_add(times.interval.as_secs())),
    }
}
