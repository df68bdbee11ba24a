//! Changes of phase, gathered so that an operation that runs smoothly costs one event and not ten.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use podward_core::Phase;

use crate::events::Draft;
use crate::tracker::Standing;

/// What has happened to a pod since its last event.
#[derive(Debug, Default)]
pub(crate) struct Story {
    chapters: BTreeMap<String, Chapter>,
    available: bool,
    began: Option<Instant>,
}

/// Whether there is an event to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Now(Draft),
    /// The story goes on; if it still does after this time, what there is of it is told.
    Later(Duration),
    Nothing,
}

/// What has happened to one operation.
#[derive(Debug)]
struct Chapter {
    operation_type: String,
    steps: Vec<&'static str>,
}

impl Story {
    pub(crate) fn entered(&mut self, id: &str, standing: &Standing) {
        self.step(id, standing, standing.phase.as_str());
    }

    pub(crate) fn ended(&mut self, id: &str, last: &Standing) {
        let outcome = match last.phase {
            Phase::WaitingForOthers | Phase::PostChecking | Phase::Completing => "Completed",
            _ => "Cancelled",
        };
        self.step(id, last, outcome);
    }

    pub(crate) fn became_available(&mut self) {
        self.available = true;
        self.began.get_or_insert_with(Instant::now);
    }

    /// The event, and an empty story, if there is something to tell and it began longer than `patience` ago.
    pub(crate) fn tell(&mut self, patience: Duration) -> Told {
        let Some(began) = self.began else { return Told::Nothing };
        let wait = patience.saturating_sub(began.elapsed());
        if !wait.is_zero() {
            return Told::Later(wait);
        }
        let story = std::mem::take(self);
        let mut sentences: Vec<String> = story
            .chapters
            .iter()
            .map(|(id, chapter)| {
                format!("operation {id} ({}): {}", chapter.operation_type, chapter.steps.join(", "))
            })
            .collect();
        let last_step =
            story.chapters.values().filter_map(|chapter| chapter.steps.last().copied()).next_back();
        if story.available {
            sentences.push("the pod is in service".to_owned());
        }
        let reason = if story.available { Some("ServiceAvailable") } else { last_step };
        reason.map_or(Told::Nothing, |reason| Told::Now(Draft { reason, note: sentences.join("; ") }))
    }

    fn step(&mut self, id: &str, standing: &Standing, step: &'static str) {
        let chapter = self.chapters.entry(id.to_owned()).or_insert_with(|| Chapter {
            operation_type: standing.operation_type.clone(),
            steps: Vec::new(),
        });
        chapter.operation_type.clone_from(&standing.operation_type);
        if chapter.steps.last() != Some(&step) {
            chapter.steps.push(step);
        }
        self.began.get_or_insert_with(Instant::now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(told: Told) -> Draft {
        match told {
            Told::Now(draft) => draft,
            other => panic!("nothing told: {other:?}"),
        }
    }

    fn at(phase: Phase) -> Standing {
        Standing::at("update", phase)
    }

    #[test]
    fn a_smooth_operation_is_told_in_one_event() {
        let mut story = Story::default();
        let patience = Duration::from_secs(60);
        for phase in [Phase::PreChecking, Phase::Preparing, Phase::Operating, Phase::PostChecking] {
            story.entered("a", &at(phase));
            assert!(matches!(story.tell(patience), Told::Later(_)));
        }
        story.ended("a", &at(Phase::Completing));
        story.became_available();
        let event = told(story.tell(Duration::ZERO));
        assert_eq!(event.reason, "ServiceAvailable");
        assert_eq!(
            event.note,
            "operation a (update): PreChecking, Preparing, Operating, PostChecking, Completed; the pod is in service"
        );
        assert_eq!(story.tell(Duration::ZERO), Told::Nothing, "told once");
    }

    #[test]
    fn a_long_wait_is_told_while_it_lasts() {
        let mut story = Story::default();
        story.entered("a", &at(Phase::Preparing));
        assert_eq!(told(story.tell(Duration::ZERO)).reason, "Preparing");
    }

    #[test]
    fn a_cancel_is_called_so() {
        let mut story = Story::default();
        story.ended("a", &at(Phase::Preparing));
        assert_eq!(told(story.tell(Duration::ZERO)).reason, "Cancelled");
    }
}
