//! Limits how often the lifecycle condition is written for its own sake.

use std::time::{Duration, Instant};

use podward_core::ConditionStatus;

/// A shorter wait is not written for its own sake. The next write that changes the gate includes it.
pub(super) const CONDITION_DELAY: Duration = Duration::from_secs(5);

/// The longest delay between two messages for the same wait. The delay starts at [`CONDITION_DELAY`] and doubles,
/// because a hook may report a countdown, and each of its messages would cause a write.
const MAX_MESSAGE_DELAY: Duration = Duration::from_secs(30);

/// Identifies a wait: the status and the reason of the condition, without its message.
pub(super) type ConditionWait = (ConditionStatus, &'static str);

/// The wait that the condition of a pod does not report yet, and the one that was written last.
#[derive(Debug, Default)]
pub(super) struct ConditionThrottle {
    pending: Option<(ConditionWait, Instant)>,
    written: Option<WrittenWait>,
}

#[derive(Debug)]
struct WrittenWait {
    wait: ConditionWait,
    at: Instant,
    /// The number of earlier messages for this wait.
    before: u32,
}

impl ConditionThrottle {
    /// Records that the condition is stored with all of `wait`.
    pub(super) fn stored(&mut self, wait: ConditionWait) {
        self.switch_to(wait);
        self.pending = None;
    }

    /// Returns how long `wait` has to last until it is written, zero if it is due. `is_new_message` is true if the
    /// stored condition has another message for the same wait.
    pub(super) fn due(&mut self, wait: ConditionWait, is_new_message: bool, now: Instant) -> Duration {
        self.switch_to(wait);
        let (_, since) = *self.pending.get_or_insert((wait, now));
        let delay = CONDITION_DELAY.saturating_sub(now.saturating_duration_since(since));
        let pause = self.written.as_ref().filter(|_| is_new_message).map_or(Duration::ZERO, |written| {
            let pause = CONDITION_DELAY.saturating_mul(1 << written.before.min(10)).min(MAX_MESSAGE_DELAY);
            pause.saturating_sub(now.saturating_duration_since(written.at))
        });
        delay.max(pause)
    }

    /// Records that the pending wait is written.
    pub(super) fn written(&mut self, now: Instant) {
        if let Some((wait, _)) = self.pending.take() {
            let before = self.written.take().map_or(0, |written| written.before.saturating_add(1));
            self.written = Some(WrittenWait { wait, at: now, before });
        }
    }

    /// Discards the state of other waits.
    fn switch_to(&mut self, wait: ConditionWait) {
        self.pending = self.pending.take().filter(|(pending, _)| *pending == wait);
        self.written = self.written.take().filter(|written| written.wait == wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOOKS: ConditionWait = (ConditionStatus::False, "Hooks");
    const RULES: ConditionWait = (ConditionStatus::False, "Rules");

    #[test]
    fn a_short_wait_is_not_written() {
        let (mut throttle, start) = (ConditionThrottle::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(throttle.due(HOOKS, false, at(0)), CONDITION_DELAY);
        assert_eq!(throttle.due(HOOKS, false, at(3)), Duration::from_secs(2));
        assert_eq!(throttle.due(RULES, false, at(4)), CONDITION_DELAY, "another wait");
        throttle.stored(RULES);
        assert_eq!(throttle.due(RULES, false, at(20)), CONDITION_DELAY, "a new wait");
        assert_eq!(throttle.due(RULES, false, at(30)), Duration::ZERO);
    }

    #[test]
    fn delays_between_messages_grow() {
        let (mut throttle, mut now) = (ConditionThrottle::default(), Instant::now());
        throttle.due(HOOKS, false, now);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            throttle.written(now);
            let pause = throttle.due(HOOKS, true, now);
            pauses.push(pause.as_secs());
            now += pause;
            assert_eq!(throttle.due(HOOKS, true, now), Duration::ZERO);
        }
        assert_eq!(pauses, [5, 10, 20, 30, 30, 30]);
        throttle.written(now);
        throttle.due(RULES, false, now);
        assert_eq!(
            throttle.due(HOOKS, true, now),
            CONDITION_DELAY,
            "the delay starts again after another wait"
        );
    }
}
