//! Pods that must not be interrupted: what their applications say, how long that is heeded, and who goes in their place.
//!
//! An application says by the annotation [`BUSY_UNTIL`] that its pod is at work until then. A pod that is busy gets no permission for any
//! operation: [`BusyChecks`] keeps it in its pre-check, in service, until the pod isn't busy any more or a maximum has passed since
//! the operation was announced, whichever is first. A pod that becomes busy after the permission was given is too late.
//!
//! # Guarantees
//! - While a pod is busy and the maximum hasn't passed no operation of it gets `pre-checked`.
//! - Nothing waits for ever: whatever stands in annotations and labels, an operation is held up for no longer than twice the maximum,
//!   and for no longer than the maximum where the time of its announcement is one that has passed.
//! - What can't be read is no work: the pod is not busy, and its condition says what is wrong.
//! - Going on although the pod is busy is on record: [`BusyChecks::record`].

mod cost;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::consumers::Evidences;
use crate::hooks::{Evidence, EvidenceLevel};
use crate::keys::{BUSY_REASON, BUSY_UNTIL, EVIDENCE, Stage};
use crate::operations::{Operation, Operations, UNKNOWN_TYPE};
use crate::plan::{CheckResult, Checks, Plan};
use crate::refusals::Objection;
use crate::time::UnixNanos;
use crate::view::PodView;

pub use cost::{Cost, DEAREST, IdleCost, is_chosen_by_cost, keep_cost};

/// A reason may have so many bytes. It stands in conditions and answers; what is longer is cut there.
pub const REASON_LIMIT: usize = 256;

/// The key in the annotation [`EVIDENCE`] under which it stands that an operation went on although the pod was busy. No hook has such
/// a name.
pub const BUSY_EVIDENCE: &str = "podward.io/busy";

/// Around the time, in the words of [`BusyChecks`], until which a busy pod is waited for.
const WAITED_FOR: (&str, &str) = ("; waited for until ", " at most");

/// Until when the operation `id` waits for its busy pod at most, as the pod's condition says it in `message`: only the
/// lifecycle-controller knows the maximum that the platform sets. `None` where the condition doesn't say.
#[must_use]
pub fn told_limit(message: &str, id: &str) -> Option<UnixNanos> {
    let (_, sentence) = message.split_once(&format!("operation {id} ("))?;
    let (before, rest) = sentence.split_once(WAITED_FOR.0)?;
    let (time, _) = rest.split_once(WAITED_FOR.1)?;
    UnixNanos::parse(time).filter(|_| !before.contains(". operation "))
}

/// Work that must not be interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy<'a> {
    /// When it is over.
    pub until: UnixNanos,
    /// What it is, for people; may be empty.
    pub reason: &'a str,
}

impl Busy<'_> {
    /// The same in words: `busy until 2026-01-01T10:00:00Z: encoding 17`.
    #[must_use]
    pub fn words(&self) -> String {
        let until = self.until.to_rfc3339();
        if self.reason.is_empty() {
            return format!("busy until {until}");
        }
        format!("busy until {until}: {}", self.reason)
    }
}

/// What a pod's annotations say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim<'a> {
    /// Nothing.
    None,
    /// That it is busy, or was.
    Busy(Busy<'a>),
    /// Something that is no time.
    Unreadable(&'a str),
}

impl<'a> Claim<'a> {
    /// Reads the texts of [`BUSY_UNTIL`] and [`BUSY_REASON`].
    ///
    /// ```
    /// use podward_core::UnixNanos;
    /// use podward_core::busy::Claim;
    ///
    /// let claim = Claim::parse(Some("1970-01-01T00:00:10Z"), Some("encoding"));
    /// assert_eq!(claim.at(UnixNanos(1)).unwrap().words(), "busy until 1970-01-01T00:00:10Z: encoding");
    /// assert_eq!(claim.at(UnixNanos(10_000_000_000)), None);
    /// assert_eq!(Claim::parse(Some("soon"), None), Claim::Unreadable("soon"));
    /// ```
    #[must_use]
    pub fn parse(until: Option<&'a str>, reason: Option<&'a str>) -> Self {
        let Some(text) = until else { return Claim::None };
        let Some(until) = UnixNanos::parse(text) else { return Claim::Unreadable(text) };
        let reason = reason.unwrap_or_default();
        Claim::Busy(Busy { until, reason: &reason[..reason.floor_char_boundary(REASON_LIMIT)] })
    }

    /// What `pod` says.
    #[must_use]
    pub fn of(pod: &PodView<'a>) -> Self {
        Claim::parse(pod.facts.busy_until, pod.facts.busy_reason)
    }

    /// The work that goes on at `now`.
    #[must_use]
    pub fn at(self, now: UnixNanos) -> Option<Busy<'a>> {
        match self {
            Claim::Busy(busy) if busy.until > now => Some(busy),
            _ => None,
        }
    }

    /// What is wrong with it, in words.
    #[must_use]
    pub fn fault(self) -> Option<String> {
        let Claim::Unreadable(text) = self else { return None };
        let text = &text[..text.floor_char_boundary(64)];
        Some(format!(
            "the annotation {BUSY_UNTIL} is {text:?}, which is no time as in 2026-01-01T10:00:00Z; the pod does not count as busy"
        ))
    }
}

/// What is wrong with a reason, in words.
#[must_use]
pub fn reason_fault(reason: &str) -> Option<String> {
    let length = reason.len();
    (length > REASON_LIMIT)
        .then(|| format!("the annotation {BUSY_REASON} has {length} bytes; it may have {REASON_LIMIT}"))
}

/// The pre-check of every operation, before those of others: a busy pod is not interrupted.
#[derive(Clone, Copy)]
pub struct BusyChecks<'a> {
    busy: Option<Busy<'a>>,
    labels: &'a BTreeMap<String, String>,
    /// `None`: there is no maximum, or nobody knows it.
    most: Option<Duration>,
    now: UnixNanos,
    others: &'a dyn Checks,
}

/// An operation that goes on although the pod is busy, because the maximum has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overrun {
    /// The operation's id.
    pub id: String,
    /// Its type.
    pub operation_type: String,
    /// What happened, in a sentence.
    pub words: String,
}

impl<'a> BusyChecks<'a> {
    /// The check of `pod`, which is heeded for `most` from when an operation was announced, and the checks of `others`.
    #[must_use]
    pub fn new(pod: &PodView<'a>, most: Duration, now: UnixNanos, others: &'a dyn Checks) -> Self {
        let busy = Claim::of(pod).at(now);
        BusyChecks { busy, labels: pod.labels, most: Some(most), now, others }
    }

    /// The same where the maximum is not known: good for saying what a pod waits for, and for nothing else.
    #[must_use]
    pub fn without_maximum(pod: &PodView<'a>, now: UnixNanos, others: &'a dyn Checks) -> Self {
        BusyChecks { most: None, ..BusyChecks::new(pod, Duration::ZERO, now, others) }
    }

    /// The work that keeps the operation `id` waiting, if any does.
    #[must_use]
    pub fn holds(&self, id: &str) -> Option<Busy<'a>> {
        self.busy.filter(|_| self.limit(id).is_none_or(|limit| limit > self.now))
    }

    /// When an operation that waits goes on, if nothing changes before.
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

    /// Puts on record that `plan` lets operations go on although the pod is busy: in its annotation of evidence, and for events and
    /// metrics in what is given back. `pod` is the pod that was planned for, as it is stored.
    #[must_use]
    pub fn record(&self, pod: &PodView<'_>, plan: &mut Plan) -> Vec<Overrun> {
        let Some(busy) = self.busy else { return Vec::new() };
        let operations = Operations::parse(self.labels);
        let waiting = operations.iter().filter(|(_, operation)| waits_to_start(operation));
        let begun = waiting.filter(|(id, _)| plan.labels.set.contains_key(&Stage::PreChecked.key(id)));
        let overruns: Vec<Overrun> =
            begun.map(|(id, operation)| self.overrun(id, operation, &busy)).collect();
        let Some(last) = overruns.last() else { return overruns };
        let planned = plan.annotations.iter().position(|(key, _)| *key == EVIDENCE);
        let text = match planned {
            Some(place) => plan.annotations.swap_remove(place).1,
            None => pod.facts.evidence.map(ToOwned::to_owned),
        };
        let mut evidences = Evidences::parse(text.as_deref());
        let evidence = Evidence { level: EvidenceLevel::TimedOut, detail: last.words.clone() };
        evidences.let_go(BUSY_EVIDENCE, &evidence);
        plan.annotations.push((EVIDENCE, evidences.text()));
        overruns
    }

    fn overrun(&self, id: &str, operation: &Operation<'_>, busy: &Busy<'_>) -> Overrun {
        let operation_type = operation.known_type().unwrap_or(UNKNOWN_TYPE).to_owned();
        let most = self.most.unwrap_or_default().as_secs();
        let words = format!(
            "operation {id} ({operation_type}) goes on although the pod is {}; busy pods are waited for {most} s at most",
            busy.words()
        );
        Overrun { id: id.to_owned(), operation_type, words }
    }

    /// Until when the operation `id` waits at most. One that is announced in this very moment has no time yet; a time that can't be,
    /// or is further ahead than clocks differ, counts as long ago.
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
            words.push_str(WAITED_FOR.0);
            words.push_str(&limit.to_rfc3339());
            words.push_str(WAITED_FOR.1);
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
