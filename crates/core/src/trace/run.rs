//! A run of an operation, followed from version to version of its pod, and the spans that it gives.

use std::collections::BTreeMap;

use crate::consumers::{HookEvent, Note};
use crate::hooks::{EvidenceLevel, Phase as HookPhase};
use crate::keys::Stage;
use crate::operations::{Operations, UNKNOWN_TYPE};
use crate::phase::Phase;
use crate::time::UnixNanos;

use super::{SpanId, TraceId, root_of, run_label, span_of, trace_of};

/// A phase tells of so many answers at most.
const MOST_HEARD: usize = 64;

/// One span, all but its attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its trace.
    pub trace: TraceId,
    /// Its name in it.
    pub id: SpanId,
    /// What it is a part of; the root is of nothing.
    pub parent: Option<SpanId>,
    /// When it began.
    pub start: UnixNanos,
    /// When it ended; never before `start`.
    pub end: UnixNanos,
    /// What it tells of.
    pub kind: SpanKind,
}

/// What a span tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// The whole run.
    Run {
        /// How it ended.
        outcome: Outcome,
        /// The first phase that there are spans of: any but the first one of all if the operation was under way already when it was
        /// first seen.
        first: Phase,
        /// The weakest evidence that a hook has given.
        evidence: Option<EvidenceLevel>,
    },
    /// A phase of it.
    Phase {
        /// Which.
        phase: Phase,
        /// What hooks have said in it.
        heard: Vec<Heard>,
    },
}

/// What a hook has said in a phase, or what became of asking it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// When it was acted on.
    pub at: UnixNanos,
    /// Hook, question and outcome.
    pub note: Note,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The operator finished.
    Completed,
    /// It was undone, or given up before it was finished.
    Cancelled,
    /// The operator began it again.
    BegunAgain,
    /// The pod is gone.
    PodGone,
}

impl Outcome {
    /// The name in CamelCase.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Completed => "Completed",
            Outcome::Cancelled => "Cancelled",
            Outcome::BegunAgain => "BegunAgain",
            Outcome::PodGone => "PodGone",
        }
    }
}

/// A run that goes on.
///
/// Its spans are gapless: a phase begins when the one before it ends, and the root spans them all. A phase that was gone through between two
/// versions gives a span too if the labels tell when it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    uid: String,
    id: String,
    run: String,
    operation_type: String,
    began: UnixNanos,
    first: Phase,
    phase: Phase,
    since: UnixNanos,
    /// What the label says of when the phase began, if there is one. It may come later than the phase.
    label: Option<UnixNanos>,
    heard: Vec<Heard>,
    evidence: Option<EvidenceLevel>,
    last_seen: UnixNanos,
}

impl Run {
    /// The run of the operation `id` that `labels` tell of; `None` if there is none. `is_new` is whether it wasn't there in the version
    /// before: then phases that it has gone through already are among the spans; otherwise whoever saw them has told of them.
    #[must_use]
    pub fn begin(
        uid: &str,
        id: &str,
        labels: &BTreeMap<String, String>,
        operations: &Operations<'_>,
        is_new: bool,
        now: UnixNanos,
    ) -> Option<(Run, Vec<Span>)> {
        let phase = phase_of(operations, id)?;
        let starts = starts(labels, id);
        let since = start_of(&starts, phase).unwrap_or(now);
        let first = match starts.iter().find(|(passed, at)| *passed < phase && *at <= since) {
            Some(first) if is_new => *first,
            _ => (phase, since),
        };
        let mut run = Run {
            uid: uid.to_owned(),
            id: id.to_owned(),
            run: labels.get(&run_label(id)).cloned().unwrap_or_default(),
            operation_type: UNKNOWN_TYPE.to_owned(),
            began: first.1,
            first: first.0,
            phase: first.0,
            since: first.1,
            label: start_of(&starts, first.0),
            heard: Vec::new(),
            evidence: None,
            last_seen: now,
        };
        let spans = run.observe(labels, operations, now).0;
        Some((run, spans))
    }

    /// Takes note of another version of the pod. Gives the spans of what is over, and whether that is all of the run: then it is to be
    /// dropped, and what goes on under its id is another one.
    pub fn observe(
        &mut self,
        labels: &BTreeMap<String, String>,
        operations: &Operations<'_>,
        now: UnixNanos,
    ) -> (Vec<Span>, bool) {
        self.last_seen = now;
        let Some(phase) = phase_of(operations, &self.id) else {
            return (self.end(self.outcome_or(Outcome::Cancelled), now), true);
        };
        let starts = starts(labels, &self.id);
        let start = start_of(&starts, phase);
        let is_entered_anew = self.label.zip(start).is_some_and(|(before, at)| at > before);
        let goes_back = phase < self.phase || (phase == self.phase && is_entered_anew);
        let run = labels.get(&run_label(&self.id));
        if goes_back && run.is_some_and(|run| *run != self.run) {
            return (self.end(self.outcome_or(Outcome::BegunAgain), start.unwrap_or(now)), true);
        }
        if let Some(known) = operations.type_of(&self.id)
            && *known != *self.operation_type
        {
            self.operation_type = known.into_owned();
        }
        let mut spans = Vec::new();
        if phase != self.phase || goes_back {
            let at = start.unwrap_or(now);
            for (passed, began) in starts {
                if self.phase < passed && passed < phase && (self.since..=at).contains(&began) {
                    spans.push(self.leave(passed, began));
                }
            }
            spans.push(self.leave(phase, at));
        }
        self.label = start;
        (spans, false)
    }

    /// What a hook has said. It counts for the phase in which the hook was asked, and once however often it is told.
    pub fn heard(&mut self, note: &Note, now: UnixNanos) {
        let asked_in = match note.phase {
            HookPhase::PreCheck => Phase::PreChecking,
            HookPhase::Prepare => Phase::Preparing,
            HookPhase::PostCheck => Phase::PostChecking,
            HookPhase::Complete => Phase::Completing,
            HookPhase::Release => return,
        };
        let is_same = |heard: &Heard| {
            let other = &heard.note;
            other.hook == note.hook
                && other.since == note.since
                && other.event.as_str() == note.event.as_str()
        };
        if asked_in != self.phase || self.heard.len() >= MOST_HEARD || self.heard.iter().any(is_same) {
            return;
        }
        self.heard.push(Heard { at: now.max(self.since), note: note.clone() });
        self.evidence = self.evidence.max(match note.event {
            HookEvent::Done(level) => Some(level),
            HookEvent::Proceeded => Some(EvidenceLevel::TimedOut),
            _ => None,
        });
    }

    /// The pod is not there any more, and was last seen when it was last told of.
    #[must_use]
    pub fn pod_gone(mut self) -> Vec<Span> {
        self.end(Outcome::PodGone, self.last_seen)
    }

    /// Where a span that happens now belongs: its trace, and the phase.
    #[must_use]
    pub fn here(&self) -> (TraceId, SpanId) {
        (trace_of(&self.uid, &self.id), self.phase_span())
    }

    /// The operation's type.
    #[must_use]
    pub fn operation_type(&self) -> &str {
        &self.operation_type
    }

    fn phase_span(&self) -> SpanId {
        span_of(&self.uid, &self.id, &self.run, self.phase, self.since)
    }

    fn root(&self) -> SpanId {
        root_of(&self.uid, &self.id, &self.run)
    }

    /// How the run ended, as far as its last phase tells.
    fn outcome_or(&self, unfinished: Outcome) -> Outcome {
        match self.phase {
            Phase::WaitingForOthers | Phase::PostChecking | Phase::Completing => Outcome::Completed,
            _ => unfinished,
        }
    }

    /// On to `phase`, at `at`.
    fn leave(&mut self, phase: Phase, at: UnixNanos) -> Span {
        let span = self.present(at);
        (self.phase, self.since) = (phase, span.end);
        span
    }

    fn present(&mut self, end: UnixNanos) -> Span {
        Span {
            trace: trace_of(&self.uid, &self.id),
            id: self.phase_span(),
            parent: Some(self.root()),
            start: self.since,
            // Labels are by the clocks of several machines.
            end: end.max(self.since),
            kind: SpanKind::Phase { phase: self.phase, heard: std::mem::take(&mut self.heard) },
        }
    }

    fn end(&mut self, outcome: Outcome, end: UnixNanos) -> Vec<Span> {
        let last = self.present(end);
        let root = Span {
            id: self.root(),
            parent: None,
            start: self.began,
            kind: SpanKind::Run { outcome, first: self.first, evidence: self.evidence },
            ..last
        };
        vec![last, root]
    }
}

/// What is announced in half is no operation yet.
fn phase_of(operations: &Operations<'_>, id: &str) -> Option<Phase> {
    Phase::of(operations.get(id)?).filter(|phase| *phase != Phase::HalfAnnounced)
}

/// When phases began, as far as labels tell, in the order of the phases.
fn starts(labels: &BTreeMap<String, String>, id: &str) -> Vec<(Phase, UnixNanos)> {
    let at = |stage: Stage| labels.get(&stage.key(id))?.parse().ok().map(UnixNanos);
    [
        (Phase::PreChecking, at(Stage::PreCheck)),
        // Begun again, an operation keeps `preparing` from before, so that alone doesn't tell.
        (Phase::Preparing, at(Stage::PreChecked).or_else(|| at(Stage::Preparing))),
        (Phase::Operating, at(Stage::Operate)),
        (Phase::PostChecking, at(Stage::Operated)),
        (Phase::Completing, at(Stage::Completing)),
    ]
    .into_iter()
    .filter_map(|(phase, at)| Some((phase, at?)))
    .collect()
}

fn start_of(starts: &[(Phase, UnixNanos)], phase: Phase) -> Option<UnixNanos> {
    starts.iter().find(|(other, _)| *other == phase).map(|(_, at)| *at)
}

#[cfg(test)]
mod tests;
