//! What a node's kube-proxy has taken in, as its metrics tell it.
//!
//! Facts, from Kubernetes 1.36 `pkg/proxy` (nftables and iptables alike):
//! - A change of a slice adds to `endpoint_changes_pending`, sets `last_queued_timestamp_seconds` of its address family, and asks for a
//!   sync. Syncs of a family run one after the other.
//! - A sync sets `endpoint_changes_pending` to 0 **when it begins**, for both families. So 0 doesn't say that anything was written.
//! - `last_timestamp_seconds` is set when a sync has written its rules; a sync that fails leaves it, and the next one writes all rules.
//! - `duration_seconds` counts a sync when it has ended, whether it failed or not.
//!
//! - A sync that failed is tried again after `syncPeriod`, 30 s by default, or with the next change. Nothing is pending meanwhile.
//!
//! So a change that was queued while a sync ran is not written by it, although that sync ends after the change was queued and nothing is
//! pending once the next one has begun. What proves that everything is written which kube-proxy had heard of when it was read is that a
//! sync that succeeded *began* after what was queued last by then; or that nothing is going on: no sync ended for longer than any sync
//! ever took, and the last didn't fail. Both compare values of one node's clock with each other, never those of two.

mod reading;

use std::collections::VecDeque;
use std::time::Duration;

use podward_core::UnixNanos;

pub(crate) use reading::{FamilyReading, Reading};

use crate::clock::{after, between};
use crate::world::{Change, Family};

/// Watches of two clients of one API server are at most this far apart: this long after a change was seen here, kube-proxy has
/// heard of it too.
pub(crate) const WATCHES: Duration = Duration::from_millis(200);
/// What a sync may do after it has set its timestamp, plus what passes between queueing and its begin: ending and beginning can't be
/// told apart closer than this. Seen on an idle node: under 0.1 ms.
const BLUR: i64 = 5_000_000;
/// What a sync may do between its timestamp and its end, at which it is counted: it tells health checks, and forgets UDP flows. A
/// timestamp that is younger may be that of a sync whose duration isn't known yet.
const ENDING: Duration = Duration::from_millis(80);
/// kube-proxy's default for the time between two syncs (`minSyncPeriod`), in which a change may wait although nothing is going on.
const BETWEEN_SYNCS: Duration = Duration::from_secs(1);
/// kube-proxy's default for the time after which a sync that failed is tried again (`syncPeriod`).
const RETRY: Duration = Duration::from_secs(30);
/// Readings that are kept of a node.
const KEPT: usize = 20;

/// What is known of a node's kube-proxy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proxy {
    /// Oldest first. Of readings in a row between which nothing happened only the first and the last are kept.
    readings: VecDeque<Reading>,
    settled: [Option<Settled>; Family::COUNT],
    /// Why it couldn't be read last time.
    failure: Option<Failure>,
}

/// A reading that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// What went wrong.
    pub(crate) why: String,
    /// Somebody took the connection and didn't answer.
    pub(crate) hangs: bool,
}

/// All that kube-proxy had heard of a family at a moment was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settled {
    /// The moment, by our clock.
    at: UnixNanos,
    /// When it last heard anything, by our clock, at the latest.
    heard: UnixNanos,
}

/// Whether a change has reached the rules of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TakenIn {
    /// It has.
    Yes,
    /// It can be seen that it hasn't yet, or it can't be told yet.
    NotYet(String),
    /// kube-proxy has heard of nothing since: its own watch may be broken.
    Unheard(String),
    /// kube-proxy hangs, or doesn't answer any more: it may lead traffic by old rules.
    Silent(String),
    /// kube-proxy can't be read.
    Unreadable(String),
}

impl Proxy {
    /// It was read.
    pub(crate) fn read(&mut self, reading: Reading) {
        self.failure = None;
        if self.readings.back().is_some_and(|last| last.started != reading.started) {
            // Another process: nothing of the old one counts.
            self.readings.clear();
            self.settled = [None; Family::COUNT];
        }
        let length = self.readings.len();
        if length >= 2 && self.readings.range(length - 2..).all(|kept| kept.is_as(&reading)) {
            self.readings.pop_back();
        }
        if self.readings.len() >= KEPT {
            self.readings.pop_front();
        }
        self.readings.push_back(reading);
        for family in Family::ALL {
            let proven = self.proven(family);
            let known = &mut self.settled[family.index()];
            if proven.is_some_and(|proven| known.is_none_or(|known| known.at < proven.at)) {
                *known = proven;
            }
        }
    }

    /// It couldn't be read.
    pub(crate) fn failed(&mut self, failure: Failure) {
        self.failure = Some(failure);
    }

    /// Whether it has taken in changes of these families.
    pub(crate) fn has(&self, changed: &[Option<Change>; Family::COUNT]) -> TakenIn {
        let mut worst = TakenIn::Yes;
        for family in Family::ALL {
            let Some(change) = changed[family.index()] else { continue };
            match self.has_family(family, change) {
                TakenIn::Yes => {}
                // The more certain it is that it hasn't, the more it says.
                not @ TakenIn::NotYet(_) => return not,
                not => worst = not,
            }
        }
        worst
    }

    fn has_family(&self, family: Family, change: Change) -> TakenIn {
        let heard_by = after(change.seen, WATCHES);
        if let Some(settled) = self.settled[family.index()]
            && settled.at >= heard_by
        {
            if change.not_before.is_none_or(|time| settled.heard >= time) {
                return TakenIn::Yes;
            }
            if self.failure.is_none() {
                let silent = between(settled.heard, change.seen).as_secs_f64();
                return TakenIn::Unheard(format!(
                    "had heard of nothing for {silent:.1} s when the slice changed"
                ));
            }
        }
        if let Some(failure) = &self.failure {
            let is_there = failure.hangs || !self.readings.is_empty();
            let why = failure.why.clone();
            return if is_there { TakenIn::Silent(why) } else { TakenIn::Unreadable(why) };
        }
        let Some(last) = self.readings.back() else {
            return TakenIn::NotYet("not read yet".to_owned());
        };
        if last.asked < heard_by {
            return TakenIn::NotYet("not read since the change".to_owned());
        }
        if last.families[family.index()].is_none() {
            // A kube-proxy without this family leads none of its traffic.
            return TakenIn::Yes;
        }
        TakenIn::NotYet(self.rests(family).err().unwrap_or_else(|| "its rules are being written".to_owned()))
    }

    /// The latest moment of which the readings prove that all that it had heard of `family` is written.
    fn proven(&self, family: Family) -> Option<Settled> {
        let index = family.index();
        let settled = |reading: &Reading| {
            let heard = reading.by_our_clock(reading.families[index]?.queued);
            Some(Settled { at: reading.asked, heard })
        };
        if self.rests(family).is_ok() {
            return settled(self.readings.back()?);
        }
        let begin = self.begin_of_last_sync(family)?;
        let was_heard =
            |reading: &&Reading| reading.families[index].is_some_and(|then| then.queued <= begin.at_least);
        settled(self.readings.iter().rev().find(was_heard)?)
    }

    /// Whether nothing is going on in `family`, and nothing is due; or why that isn't so, or can't be told yet.
    fn rests(&self, family: Family) -> Result<(), String> {
        let index = family.index();
        let Some((last, now)) = self.readings.back().and_then(|last| Some((last, last.families[index]?)))
        else {
            return Err("not read yet".to_owned());
        };
        if last.pending > 0 {
            return Err(format!("{} changes are pending", last.pending));
        }
        if now.synced < now.queued {
            let seconds = Duration::from_nanos((now.queued - now.synced).unsigned_abs()).as_secs_f64();
            return Err(format!("a change was queued {seconds:.2} s after its rules were last written"));
        }
        let window = match self.begin_of_last_sync(family) {
            // It certainly began before; another is due.
            Some(begin) if begin.is_exact && begin.at_least + BLUR < now.queued => {
                return Err("a change was queued during its last sync".to_owned());
            }
            _ if self.last_sync_may_have_failed(family) => now.longest + RETRY,
            Some(begin) if begin.is_exact && last.pending_is_of(family) => WATCHES.max(now.longest),
            _ => WATCHES.max(now.longest) + BETWEEN_SYNCS,
        };
        let idle = self.unchanged_for(|reading| reading.is_idle_as(last, family));
        if idle < window {
            return Err(format!("idle for {} ms of {} ms", idle.as_millis(), window.as_millis()));
        }
        Ok(())
    }

    /// Whether readings can't tell that the last sync succeeded.
    fn last_sync_may_have_failed(&self, family: Family) -> bool {
        let mut earlier = self.readings.iter().rev().filter_map(|reading| reading.families[family.index()]);
        let Some(now) = earlier.next() else { return false };
        let before = earlier.find(|then| (then.synced, then.failures) != (now.synced, now.failures));
        now.failures > 0 && before.is_none_or(|then| then.failures < now.failures)
    }

    /// When the last sync that succeeded began, by the node's clock: its end less what all syncs since an earlier reading took, which
    /// had neither.
    fn begin_of_last_sync(&self, family: Family) -> Option<Begin> {
        let of = |reading: &Reading| reading.families[family.index()];
        let now = of(self.readings.back()?)?;
        let counts = |then: FamilyReading| then.syncs == now.syncs && then.synced == now.synced;
        if self.unchanged_for(|reading| of(reading).is_some_and(counts)) < ENDING {
            return None;
        }
        let is_older = |then: &FamilyReading| then.syncs < now.syncs && then.synced < now.synced;
        let base = self.readings.iter().rev().filter_map(of).find(is_older)?;
        let took = now.sync_nanos - base.sync_nanos;
        Some(Begin { at_least: now.synced - took, is_exact: now.syncs - base.syncs == 1 })
    }

    /// For how long `same` has held of all readings, up to the last.
    fn unchanged_for(&self, same: impl Fn(&Reading) -> bool) -> Duration {
        let first = self.readings.iter().rev().take_while(|reading| same(reading)).last();
        let since = first.zip(self.readings.back());
        since.map_or(Duration::ZERO, |(first, last)| between(first.answered, last.asked))
    }
}

/// When a sync began.
struct Begin {
    /// Not before this, in nanoseconds.
    at_least: i64,
    /// And not long after it.
    is_exact: bool,
}

impl Reading {
    /// Whether nothing happened between the two.
    fn is_as(&self, other: &Reading) -> bool {
        self.pending == other.pending && self.families == other.families
    }

    /// Whether nothing was going on in `family` between the two, as far as they tell.
    fn is_idle_as(&self, other: &Reading, family: Family) -> bool {
        let at = family.index();
        self.pending == 0
            && self.families[at].as_ref().zip(other.families[at].as_ref()).is_some_and(|(one, other)| {
                one.syncs == other.syncs && one.queued == other.queued && one.synced == other.synced
            })
    }

    /// Whether nothing of `family` can be pending when nothing is: no sync of another family has reset the number since its last
    /// change.
    fn pending_is_of(&self, family: Family) -> bool {
        let Some(ours) = &self.families[family.index()] else { return true };
        let mut others = Family::ALL.into_iter().filter(|other| *other != family);
        others.all(|other| {
            self.families[other.index()]
                .as_ref()
                .is_none_or(|other| other.synced < ours.queued && other.queued <= other.synced)
        })
    }

    /// A time of the node's clock by ours, at the latest: its clock is only known to the second, from the header `Date`.
    fn by_our_clock(&self, time: i64) -> UnixNanos {
        let ahead = self.node_clock.map_or(0, |node| node - self.answered.0);
        UnixNanos(time - ahead)
    }
}

#[cfg(test)]
mod tests;
