//! A run of an operation, observed over the versions of its pod, and its spans.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::hooks::{EvidenceLevel, HookPhase};
use crate::hooks::{HookEvent, HookReport};
use crate::model::keys::Stage;
use crate::model::operations::{Operations, UNKNOWN_TYPE};
use crate::model::phase::OperationPhase;
use crate::model::time::UnixNanos;

use super::ids::{SpanId, TraceId, root_of, run_label, span_of, trace_of};

/// The maximum number of hook reports in the span of a phase.
const MAX_REPORTS: usize = 64;

/// A span without attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationSpan {
    /// The trace.
    pub trace: TraceId,
    /// The id.
    pub id: SpanId,
    /// The parent span; `None` for the root.
    pub parent: Option<SpanId>,
    /// The start.
    pub start: UnixNanos,
    /// The end, never before `start`.
    pub end: UnixNanos,
    /// The content.
    pub kind: SpanKind,
}

/// The content of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// The whole run.
    Run {
        /// How the run ended.
        outcome: RunOutcome,
        /// The first phase with a span. It is not the first phase of the protocol when the operation was already active
        /// at the first observation.
        first: OperationPhase,
        /// The weakest evidence of a hook.
        evidence: Option<EvidenceLevel>,
    },
    /// A phase of the run.
    Phase {
        /// The phase.
        phase: OperationPhase,
        /// The reports of hooks in the phase.
        reports: Vec<SpanHookReport>,
    },
}

/// A report of a hook in a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanHookReport {
    /// The time at which it took effect.
    pub at: UnixNanos,
    /// The report.
    pub note: HookReport,
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunOutcome {
    /// The operator has finished.
    Completed,
    /// The operation was undone, or given up before it was finished.
    Cancelled,
    /// The operator began it again.
    BegunAgain,
    /// The pod is gone.
    PodGone,
}

impl RunOutcome {
    /// Returns the name in CamelCase.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            RunOutcome::Completed => "Completed",
            RunOutcome::Cancelled => "Cancelled",
            RunOutcome::BegunAgain => "BegunAgain",
            RunOutcome::PodGone => "PodGone",
        }
    }
}

/// An active run.
///
/// The spans have no gaps: a phase begins when the previous one ends, and the root covers all of them. A phase that
/// began and ended between two versions has a span if the labels contain its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationRun {
    uid: String,
    id: String,
    run: String,
    operation_type: String,
    began: UnixNanos,
    first: OperationPhase,
    phase: OperationPhase,
    since: UnixNanos,
    /// The start of the phase according to its label. The label may be set later than the phase begins.
    label: Option<UnixNanos>,
    reports: Vec<SpanHookReport>,
    evidence: Option<EvidenceLevel>,
    last_seen: UnixNanos,
}

impl OperationRun {
    /// Starts to observe the run of the operation `id`; `None` when `labels` contain none. `is_new` is true if the
    /// previous version did not contain it: then earlier phases get spans, too. Otherwise the previous observer has
    /// reported them.
    #[must_use]
    pub fn begin(
        uid: &str,
        id: &str,
        labels: &BTreeMap<String, String>,
        operations: &Operations<'_>,
        is_new: bool,
        now: UnixNanos,
    ) -> Option<(OperationRun, Vec<OperationSpan>)> {
        let phase = phase_of(operations, id)?;
        let starts = starts(labels, id);
        let since = start_of(&starts, phase).unwrap_or(now);
        let first = match starts.iter().find(|(passed, at)| *passed < phase && *at <= since) {
            Some(first) if is_new => *first,
            _ => (phase, since),
        };
        let mut run = OperationRun {
            uid: uid.to_owned(),
            id: id.to_owned(),
            run: labels.get(&run_label(id)).cloned().unwrap_or_default(),
            operation_type: UNKNOWN_TYPE.to_owned(),
            began: first.1,
            first: first.0,
            phase: first.0,
            since: first.1,
            label: start_of(&starts, first.0),
            reports: Vec::new(),
            evidence: None,
            last_seen: now,
        };
        let spans = run.observe(labels, operations, now).0;
        Some((run, spans))
    }

    /// Observes another version of the pod. Returns the spans that have ended, and whether the run has ended. After
    /// that a new run may have the same id.
    pub fn observe(
        &mut self,
        labels: &BTreeMap<String, String>,
        operations: &Operations<'_>,
        now: UnixNanos,
    ) -> (Vec<OperationSpan>, bool) {
        self.last_seen = now;
        let Some(phase) = phase_of(operations, &self.id) else {
            return (self.end(self.outcome_or(RunOutcome::Cancelled), now), true);
        };
        let starts = starts(labels, &self.id);
        let start = start_of(&starts, phase);
        let is_entered_anew = self.label.zip(start).is_some_and(|(before, at)| at > before);
        let goes_back = phase < self.phase || (phase == self.phase && is_entered_anew);
        let run = labels.get(&run_label(&self.id));
        if goes_back && run.is_some_and(|run| *run != self.run) {
            return (self.end(self.outcome_or(RunOutcome::BegunAgain), start.unwrap_or(now)), true);
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

    /// Adds a report of a hook to the phase in which the hook was asked. A repeated report counts once.
    pub fn add_report(&mut self, note: &HookReport, now: UnixNanos) {
        let asked_in = match note.phase {
            HookPhase::PreCheck => OperationPhase::PreChecking,
            HookPhase::Prepare => OperationPhase::Preparing,
            HookPhase::PostCheck => OperationPhase::PostChecking,
            HookPhase::Complete => OperationPhase::Completing,
            HookPhase::Release => return,
        };
        let is_same = |report: &SpanHookReport| {
            let other = &report.note;
            other.hook == note.hook
                && other.since == note.since
                && other.event.as_str() == note.event.as_str()
        };
        if asked_in != self.phase || self.reports.len() >= MAX_REPORTS || self.reports.iter().any(is_same) {
            return;
        }
        self.reports.push(SpanHookReport { at: now.max(self.since), note: note.clone() });
        self.evidence = self.evidence.max(match note.event {
            HookEvent::Done(level) => Some(level),
            HookEvent::Proceeded => Some(EvidenceLevel::TimedOut),
            _ => None,
        });
    }

    /// Ends the run because the pod is gone, at the time of the last observation.
    #[must_use]
    pub fn pod_gone(mut self) -> Vec<OperationSpan> {
        self.end(RunOutcome::PodGone, self.last_seen)
    }

    /// Returns the trace and the span of the present phase, for new spans.
    #[must_use]
    pub fn here(&self) -> (TraceId, SpanId) {
        (trace_of(&self.uid, &self.id), self.phase_span())
    }

    /// Returns the type of the operation.
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

    /// Returns the outcome according to the last phase.
    fn outcome_or(&self, unfinished: RunOutcome) -> RunOutcome {
        if has_finished(self.phase) { RunOutcome::Completed } else { unfinished }
    }

    /// Ends the phase and begins `phase` at `at`.
    fn leave(&mut self, phase: OperationPhase, at: UnixNanos) -> OperationSpan {
        let span = self.present(at);
        (self.phase, self.since) = (phase, span.end);
        span
    }

    fn present(&mut self, end: UnixNanos) -> OperationSpan {
        OperationSpan {
            trace: trace_of(&self.uid, &self.id),
            id: self.phase_span(),
            parent: Some(self.root()),
            start: self.since,
            // The labels are from the clocks of several machines.
            end: end.max(self.since),
            kind: SpanKind::Phase { phase: self.phase, reports: std::mem::take(&mut self.reports) },
        }
    }

    fn end(&mut self, outcome: RunOutcome, end: UnixNanos) -> Vec<OperationSpan> {
        let last = self.present(end);
        let root = OperationSpan {
            id: self.root(),
            parent: None,
            start: self.began,
            kind: SpanKind::Run { outcome, first: self.first, evidence: self.evidence },
            ..last
        };
        vec![last, root]
    }
}

/// Returns whether the operator has finished in `phase`.
pub(crate) fn has_finished(phase: OperationPhase) -> bool {
    use OperationPhase::{Completing, PostChecking, WaitingForOthers};
    matches!(phase, WaitingForOthers | PostChecking | Completing)
}

/// Returns the phase of an operation. An incomplete operation has none.
pub(crate) fn phase_of(operations: &Operations<'_>, id: &str) -> Option<OperationPhase> {
    OperationPhase::of(operations.get(id)?).filter(|phase| *phase != OperationPhase::Incomplete)
}

/// Returns the starts of phases according to the labels, in the order of the phases.
pub(crate) fn starts(labels: &BTreeMap<String, String>, id: &str) -> Vec<(OperationPhase, UnixNanos)> {
    let at = |stage: Stage| labels.get(&stage.key(id))?.parse().ok().map(UnixNanos);
    [
        (OperationPhase::PreChecking, at(Stage::PreCheck)),
        // An operation that is begun again keeps `preparing`, so this label alone does not show the phase.
        (OperationPhase::Preparing, at(Stage::PreChecked).or_else(|| at(Stage::Preparing))),
        (OperationPhase::Operating, at(Stage::Operate)),
        (OperationPhase::PostChecking, at(Stage::Operated)),
        (OperationPhase::Completing, at(Stage::Completing)),
    ]
    .into_iter()
    .filter_map(|(phase, at)| Some((phase, at?)))
    .collect()
}

fn start_of(starts: &[(OperationPhase, UnixNanos)], phase: OperationPhase) -> Option<UnixNanos> {
    starts.iter().find(|(other, _)| *other == phase).map(|(_, at)| *at)
}

#[cfg(test)]
mod tests;
