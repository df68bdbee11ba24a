//! One operation in the history.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::phase::OperationPhase;
use crate::model::time::UnixNanos;
use crate::trace::RunOutcome;

/// An operation in the history of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationRecord {
    /// The id.
    pub id: String,
    /// The type.
    #[serde(rename = "type")]
    pub operation_type: String,
    /// The time at which the operation began, with milliseconds.
    #[serde(with = "time")]
    pub began: UnixNanos,
    /// The user who began it. `None` if Podward did, or if its webhook did not see the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_by: Option<String>,
    /// The phases, each with the milliseconds from `began` to its start. A phase lasts until the next one starts.
    pub phases: Vec<(OperationPhase, u64)>,
    /// The level of evidence by hook.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub evidence: BTreeMap<String, String>,
    /// The user who finished or cancelled it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_by: Option<String>,
    /// The milliseconds from `began` to the end; `None` until the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// The outcome; `None` until the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
}

impl OperationRecord {
    pub(super) fn new(id: &str, began: UnixNanos) -> Self {
        OperationRecord {
            id: id.to_owned(),
            operation_type: String::new(),
            // The text has milliseconds.
            began: UnixNanos(began.0.saturating_sub(began.0.rem_euclid(1_000_000))),
            begun_by: None,
            phases: Vec::new(),
            evidence: BTreeMap::new(),
            finished_by: None,
            ended: None,
            outcome: None,
        }
    }

    /// Returns the phases with their starts and ends in milliseconds after `began`. The end of the last phase of an
    /// operation that is not over is `now`.
    pub fn spans(&self, now: UnixNanos) -> impl Iterator<Item = (OperationPhase, u64, u64)> {
        let end = self.ended.unwrap_or_else(|| self.offset(now));
        let ends = self.phases.iter().skip(1).map(|(_, at)| *at).chain([end]);
        self.phases.iter().zip(ends).map(|((phase, start), end)| (*phase, *start, end.max(*start)))
    }

    /// Returns the time that is `offset` milliseconds after the beginning.
    #[must_use]
    pub fn at(&self, offset: u64) -> UnixNanos {
        let nanos = i64::try_from(Duration::from_millis(offset).as_nanos()).unwrap_or(i64::MAX);
        UnixNanos(self.began.0.saturating_add(nanos))
    }

    /// Adds the phases in `starts` up to `present`, and `present` itself: if `starts` does not contain it, it starts
    /// `now`. Phases that the operation has reached before are not added again.
    pub(super) fn enter_all(
        &mut self,
        starts: &[(OperationPhase, UnixNanos)],
        present: Option<OperationPhase>,
        now: UnixNanos,
    ) {
        let Some(present) = present else { return };
        let passed = starts.iter().copied().filter(|(phase, _)| *phase <= present);
        for (phase, at) in passed.chain([(present, now)]) {
            let last = self.phases.last().copied();
            if last.is_none_or(|(last, _)| phase > last) {
                // The times are from the clocks of several machines.
                let start = self.offset(at).max(last.map_or(0, |(_, start)| start));
                self.phases.push((phase, start));
            }
        }
    }

    pub(super) fn end(&mut self, at: UnixNanos) {
        let start = self.phases.last().map_or(0, |(_, start)| *start);
        self.ended = Some(self.offset(at).max(start));
    }

    fn offset(&self, at: UnixNanos) -> u64 {
        u64::try_from(at.since(self.began).as_millis()).unwrap_or(u64::MAX)
    }
}

/// Times in RFC 3339 with milliseconds.
mod time {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::model::time::UnixNanos;

    pub(super) fn serialize<S: Serializer>(time: &UnixNanos, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&time.to_rfc3339_millis())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UnixNanos, D::Error> {
        let text = String::deserialize(deserializer)?;
        UnixNanos::parse(&text).ok_or_else(|| D::Error::custom("not a time in RFC 3339"))
    }
}
