//! Pods that must not be interrupted: how the application says so, and how long an operation waits for it.
//!
//! With the annotation [`BUSY_UNTIL`] an application says until when its pod must not be interrupted. A busy pod gets
//! no permission for any operation: [`BusyChecks`] keeps the operation in its pre-check, with the pod in service, until
//! the pod is no longer busy or a maximum time has passed since the announcement. A pod that becomes busy after the
//! permission does not stop the operation.
//!
//! # Guarantees
//! - While a pod is busy and the maximum has not passed, none of its operations gets `pre-checked`.
//! - Every wait ends: an operation waits at most twice the maximum, whatever annotations and labels contain, and at
//!   most the maximum when its announcement is in the past.
//! - A value that cannot be read does not make a pod busy; the condition of the pod reports the error.
//! - An operation that starts although the pod is busy is recorded: [`BusyChecks::record`].

mod cost;
mod limits;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::hooks::EvidenceRecord;
use crate::hooks::PodPlan;
use crate::hooks::{Evidence, EvidenceLevel};
use crate::model::keys::{BUSY_REASON, BUSY_UNTIL, EVIDENCE, Stage};
use crate::model::operations::{Operation, Operations, UNKNOWN_TYPE};
use crate::model::time::UnixNanos;
use crate::model::view::PodView;
use crate::protocol::checks::{CheckResult, Checks};
use crate::protocol::objection::Objection;

pub use cost::{DeletionCost, HIGHEST_COST, IdleCost, is_chosen_by_cost, keep_cost, restore_cost};
pub use limits::BusyLimits;

/// The length limit of a reason in bytes. Conditions and answers contain no more of it.
pub const REASON_LIMIT: usize = 256;

/// The key in the annotation [`EVIDENCE`] that records an operation which started although the pod was busy. No hook
/// has such a name.
pub const BUSY_EVIDENCE: &str = "podward.io/busy";

/// Work that must not be interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyWork<'a> {
    /// The end of the work.
    pub until: UnixNanos,
    /// The description for people; may be empty.
    pub reason: &'a str,
}

impl BusyWork<'_> {
    /// Returns the text for people: `busy until 2026-01-01T10:00:00Z: encoding 17`.
    #[must_use]
    pub fn words(&self) -> String {
        let until = self.until.to_rfc3339();
        if self.reason.is_empty() {
            return format!("busy until {until}");
        }
        format!("busy until {until}: {}", self.reason)
    }
}

/// The content of a pod's annotations about work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyClaim<'a> {
    /// There is no annotation.
    None,
    /// The pod is or was busy.
    Busy(BusyWork<'a>),
    /// The text is not a time.
    Unreadable(&'a str),
}

impl<'a> BusyClaim<'a> {
    /// Reads the texts of [`BUSY_UNTIL`] and [`BUSY_REASON`].
    ///
    /// ```
    /// use podward_core::UnixNanos;
    /// use podward_core::busy::BusyClaim;
    ///
    /// let claim = BusyClaim::parse(Some("1970-01-01T00:00:10Z"), Some("encoding"));
    /// assert_eq!(claim.at(UnixNanos(1)).unwrap().words(), "busy until 1970-01-01T00:00:10Z: encoding");
    /// assert_eq!(claim.at(UnixNanos(10_000_000_000)), None);
    /// assert_eq!(BusyClaim::parse(Some("soon"), None), BusyClaim::Unreadable("soon"));
    /// ```
    #[must_use]
    pub fn parse(until: Option<&'a str>, reason: Option<&'a str>) -> Self {
        let Some(text) = until else { return BusyClaim::None };
        let Some(until) = UnixNanos::parse(text) else { return BusyClaim::Unreadable(text) };
        let reason = reason.unwrap_or_default();
        BusyClaim::Busy(BusyWork { until, reason: &reason[..reason.floor_char_boundary(REASON_LIMIT)] })
    }

    /// Reads the annotations of `pod`.
    #[must_use]
    pub fn of(pod: &PodView<'a>) -> Self {
        BusyClaim::parse(pod.facts.busy_until, pod.facts.busy_reason)
    }

    /// Returns the work that is active at `now`.
    #[must_use]
    pub fn at(self, now: UnixNanos) -> Option<BusyWork<'a>> {
        match self {
            BusyClaim::Busy(busy) if busy.until > now => Some(busy),
            _ => None,
        }
    }

    /// Returns the error text of an unreadable annotation.
    #[must_use]
    pub fn fault(self) -> Option<String> {
        let BusyClaim::Unreadable(text) = self else { return None };
        let text = &text[..text.floor_char_boundary(64)];
        Some(format!(
            "the annotation {BUSY_UNTIL} is {text:?}, which is not a time such as 2026-01-01T10:00:00Z; the pod does not count as busy"
        ))
    }
}

/// Returns the error text of a reason that is too long.
#[must_use]
pub fn reason_fault(reason: &str) -> Option<String> {
    let length = reason.len();
    (length > REASON_LIMIT)
        .then(|| format!("the annotation {BUSY_REASON} has {length} bytes; it may have {REASON_LIMIT}"))
}

/// The pre-check that keeps every operation waiting while the pod is busy. It combines with other checks.
#[derive(Clone, Copy)]
pub struct BusyChecks<'a> {
    busy: Option<BusyWork<'a>>,
    labels: &'a BTreeMap<String, String>,
    /// `None` when there is no maximum or it is unknown.
    most: Option<Duration>,
    now: UnixNanos,
    others: &'a dyn Checks,
}

/// An operation that starts although the pod is busy, because the maximum has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyOverrun {
    /// The id of the operation.
    pub id: String,
    /// The type of the operation.
    pub operation_type: String,
    /// The text for people.
    pub words: String,
}

impl<'a> BusyChecks<'a> {
    /// Returns the check of `pod` combined with `others`. An operation waits at most `most` after its announcement.
    #[must_use]
    pub fn new(pod: &PodView<'a>, most: Duration, now: UnixNanos, others: &'a dyn Checks) -> Self {
        let busy = BusyClaim::of(pod).at(now);
        BusyChecks { busy, labels: pod.labels, most: Some(most), now, others }
    }

    /// Returns the check with an unknown maximum. Use it only to explain what a pod waits for.
    #[must_use]
    pub fn without_maximum(pod: &PodView<'a>, now: UnixNanos, others: &'a dyn Checks) -> Self {
        BusyChecks { most: None, ..BusyChecks::new(pod, Duration::ZERO, now, others) }
    }

    /// Returns the work that keeps the operation `id` waiting.
    #[must_use]
    pub fn holds(&self, id: &str) -> Option<BusyWork<'a>> {
        self.busy.filter(|_| self.limit(id).is_none_or(|limit| limit > self.now))
    }

    /// Returns the time at which a waiting operation continues if nothing changes before.
    #[must_use]
    pub fn wake(&self) -> Option<UnixNanos> {
        let operations = Operations::parse(self.labels);
        let waiting = operations.iter().filter(|(_, operation)| waits_to_start(operation));
        let ends = waiting.filter_map(|(id, _)| {
            let busy = self.holds(id)?;
            Some(self.limit(id).map_or(busy.until, |limit| limit.min(busy.until)))
        });
        ends.min()
    }

    /// Returns the end of the wait of each operation that waits for the busy pod.
    #[must_use]
    pub fn limits(&self) -> BusyLimits {
        let operations = Operations::parse(self.labels);
        let waiting = operations.iter().filter(|(_, operation)| waits_to_start(operation));
        let limits = waiting.filter_map(|(id, _)| {
            self.holds(id)?;
            Some((id.to_owned(), self.limit(id)?))
        });
        limits.collect()
    }

    /// Records that `plan` starts operations although the pod is busy: in the annotation of evidence, and in the
    /// returned values for events and metrics. `pod` is the stored pod of the plan.
    #[must_use]
    pub fn record(&self, pod: &PodView<'_>, plan: &mut PodPlan) -> Vec<BusyOverrun> {
        let Some(busy) = self.busy else { return Vec::new() };
        let operations = Operations::parse(self.labels);
        let waiting = operations.iter().filter(|(_, operation)| waits_to_start(operation));
        let begun = waiting.filter(|(id, _)| plan.labels.set.contains_key(&Stage::PreChecked.key(id)));
        let overruns: Vec<BusyOverrun> =
            begun.map(|(id, operation)| self.overrun(id, operation, &busy)).collect();
        let Some(last) = overruns.last() else { return overruns };
        let planned = plan.annotations.iter().position(|(key, _)| *key == EVIDENCE);
        let text = match planned {
            Some(place) => plan.annotations.swap_remove(place).1,
            None => pod.facts.evidence.map(ToOwned::to_owned),
        };
        let mut evidences = EvidenceRecord::parse(text.as_deref());
        let evidence = Evidence { level: EvidenceLevel::TimedOut, detail: last.words.clone() };
        evidences.released(BUSY_EVIDENCE, &evidence);
        plan.annotations.push((EVIDENCE, evidences.text()));
        overruns
    }

    fn overrun(&self, id: &str, operation: &Operation<'_>, busy: &BusyWork<'_>) -> BusyOverrun {
        let operation_type = operation.known_type().unwrap_or(UNKNOWN_TYPE).to_owned();
        let most = self.most.unwrap_or_default().as_secs();
        let words = format!(
            "operation {id} ({operation_type}) starts although the pod is {}; Podward waits at most {most} s for a busy pod",
            busy.words()
        );
        BusyOverrun { id: id.to_owned(), operation_type, words }
    }

    /// Returns the time at which the wait of the operation `id` ends at the latest. An operation that is announced now
    /// has no time yet. A time that is unreadable or too far in the future counts as long ago.
    fn limit(&self, id: &str) -> Option<UnixNanos> {
        let most = i64::try_from(self.most?.as_nanos()).unwrap_or(i64::MAX);
        let announced = match self.labels.get(&Stage::PreCheck.key(id)) {
            None => self.now.0,
            Some(text) => {
                let time = text.parse().unwrap_or_default();
                if time <= self.now.0.saturating_add(most) { time } else { 0 }
            }
        };
        Some(UnixNanos(announced.saturating_add(most)))
    }
}

fn waits_to_start(operation: &Operation<'_>) -> bool {
    operation.has(Stage::Operating) && !operation.has(Stage::PreChecked)
}

impl Checks for BusyChecks<'_> {
    fn pre_check(&self, id: &str, operation_type: &str) -> CheckResult {
        let others = self.others.pre_check(id, operation_type);
        let Some(busy) = self.holds(id) else { return others };
        let mut words = busy.words();
        if let Some(limit) = self.limit(id) {
            words.push_str("; Podward waits until ");
            words.push_str(&limit.to_rfc3339());
            words.push_str(" at the latest");
        }
        if let CheckResult::Wait(reason) = others {
            words.push_str("; also: ");
            words.push_str(&reason);
        }
        CheckResult::Wait(words)
    }

    fn post_check(&self, id: &str, operation_type: &str) -> CheckResult {
        self.others.post_check(id, operation_type)
    }

    fn objections(&self, id: &str, operation_type: &str) -> Vec<Objection> {
        self.others.objections(id, operation_type)
    }
}
