//! When the condition of a pod is written for no other reason than to say what the pod waits for.

use std::time::{Duration, Instant};

use podward_core::ConditionStatus;

/// A wait that is over sooner is not worth a write of its own: the next write that moves the gate tells of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How often at most the condition is written to say something else of the same wait, when that has been done some times: hooks that count
/// down what they wait for must not cost a write each time. The first times it is done sooner.
const REWORDING: Duration = Duration::from_secs(30);

/// Status and reason of the condition: which wait it is, whatever its words.
pub(crate) type Wait = (ConditionStatus, &'static str);

/// What a pod waits for that its condition doesn't say yet, and what was said last.
#[derive(Debug, Default)]
pub(crate) struct Telling {
    untold: Option<(Wait, Instant)>,
    told: Option<Told>,
}

#[derive(Debug)]
struct Told {
    wait: Wait,
    at: Instant,
    /// How often something else was said of it before.
    before: u32,
}

impl Telling {
    /// The condition says all of this wait.
    pub(crate) fn is_told(&mut self, wait: Wait) {
        self.turn_to(wait);
        self.untold = None;
    }

    /// How long the pod must go on with this wait until that is written; zero when it is time. `reworded`: the condition tells
    /// of it, in other words.
    pub(crate) fn due(&mut self, wait: Wait, reworded: bool, now: Instant) -> Duration {
        self.turn_to(wait);
        let (_, since) = *self.untold.get_or_insert((wait, now));
        let patience = PATIENCE.saturating_sub(now.saturating_duration_since(since));
        let pause = self.told.as_ref().filter(|_| reworded).map_or(Duration::ZERO, |told| {
            let pause = PATIENCE.saturating_mul(1 << told.before.min(10)).min(REWORDING);
            pause.saturating_sub(now.saturating_duration_since(told.at))
        });
        patience.max(pause)
    }

    /// It was written.
    pub(crate) fn told(&mut self, now: Instant) {
        if let Some((wait, _)) = self.untold.take() {
            let before = self.told.take().map_or(0, |told| told.before.saturating_add(1));
            self.told = Some(Told { wait, at: now, before });
        }
    }

    /// What was said of other waits doesn't count for this one.
    fn turn_to(&mut self, wait: Wait) {
        self.untold = self.untold.take().filter(|(untold, _)| *untold == wait);
        self.told = self.told.take().filter(|told| told.wait == wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOOKS: Wait = (ConditionStatus::False, "Hooks");
    const RULES: Wait = (ConditionStatus::False, "Rules");

    #[test]
    fn a_wait_that_is_soon_over_is_not_told() {
        let (mut telling, start) = (Telling::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(telling.due(HOOKS, false, at(0)), PATIENCE);
        assert_eq!(telling.due(HOOKS, false, at(3)), Duration::from_secs(2));
        assert_eq!(telling.due(RULES, false, at(4)), PATIENCE, "another wait");
        telling.is_told(RULES);
        assert_eq!(telling.due(RULES, false, at(20)), PATIENCE, "another one, of its own");
        assert_eq!(telling.due(RULES, false, at(30)), Duration::ZERO);
    }

    #[test]
    fn other_words_come_ever_later() {
        let (mut telling, mut now) = (Telling::default(), Instant::now());
        telling.due(HOOKS, false, now);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            telling.told(now);
            let pause = telling.due(HOOKS, true, now);
            pauses.push(pause.as_secs());
            now += pause;
            assert_eq!(telling.due(HOOKS, true, now), Duration::ZERO);
        }
        assert_eq!(pauses, [5, 10, 20, 30, 30, 30]);
        telling.told(now);
        telling.due(RULES, false, now);
        assert_eq!(telling.due(HOOKS, true, now), PATIENCE, "it begins anew after another wait");
    }
}
