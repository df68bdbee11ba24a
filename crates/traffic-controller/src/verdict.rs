//! Answers, from what is known: functions without clock or I/O.

mod complete;
mod parts;
mod pre_check;
mod prepare;
mod release;

use std::time::Duration;

use podward_core::UnixNanos;
use podward_core::hooks::{Evidence, EvidenceLevel};

pub(crate) use complete::complete;
pub(crate) use parts::{Nodes, OneNode};
pub(crate) use pre_check::{ServiceOthers, pre_check};
pub(crate) use prepare::{Flight, Progress, prepare};
pub(crate) use release::release;

/// How long is waited where nothing can be seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// Until a proxy that can't be read has taken in a change.
    pub(crate) propagation: Duration,
    /// Until requests in flight have ended.
    pub(crate) quiet: Duration,
    /// Until clients have forgotten a DNS answer.
    pub(crate) dns_ttl: Duration,
    /// Until a replacement is ready, where the last endpoint would be taken out.
    pub(crate) surge: Duration,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// What was asked for is done.
    Done(Evidence),
    /// Not yet.
    Pending {
        /// What it waits for.
        reason: String,
        /// When time alone may bring it further; `None` when only an event can.
        until: Option<UnixNanos>,
    },
}

impl Verdict {
    fn done(level: EvidenceLevel, detail: impl Into<String>) -> Self {
        Verdict::Done(Evidence { level, detail: detail.into() })
    }

    fn pending(reason: impl Into<String>, until: Option<UnixNanos>) -> Self {
        Verdict::Pending { reason: reason.into(), until }
    }
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Done, with this evidence and these words.
    Done(EvidenceLevel, String),
    /// Not yet: what it waits for, and when time alone may bring it further.
    Wait(String, Option<UnixNanos>),
}

/// Names in words: the first three, and how many more.
fn names(all: &[String]) -> String {
    const SHOWN: usize = 3;
    let mut text = all.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if all.len() > SHOWN {
        text += &format!(" and {} more", all.len() - SHOWN);
    }
    text
}

/// `1 slice`, `2 slices`.
fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
