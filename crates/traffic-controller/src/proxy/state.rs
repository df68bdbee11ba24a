//! The state of one kube-proxy, derived from successive readings of its metrics.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use podward_core::UnixNanos;

use super::reading::{FamilyReading, ProxyReading};
use super::settings::ProxySettings;
use super::watch_lag::WATCH_LAG;
use crate::clock::{after, between};
use crate::index::{AddressFamily, EndpointChange};

/// The time in nanoseconds that may pass between the timestamp of a sync and its end, plus the time between queueing a
/// change and the begin of the sync. The order of events that are closer to each other is unknown. On an idle node it
/// is less than 0.1 ms.
const TIMESTAMP_ACCURACY: i64 = 5_000_000;
/// The time that may pass between the timestamp of a sync and its end, when it is counted: the sync updates health
/// checks and deletes UDP flows. A younger timestamp may belong to a sync that is not counted yet.
const SYNC_CLEANUP: Duration = Duration::from_millis(80);
/// A sync that seems to be due is waited for this many times as long as the longest sync took.
const SLOW_SYNC: u32 = 10;
/// The maximum number of readings of a node that are kept.
const MAX_READINGS: usize = 20;

/// The readings of one kube-proxy, and what they prove.
#[derive(Clone, Debug, Default)]
pub(crate) struct KubeProxyState {
    /// The oldest reading is the first. Of successive readings without a difference only the first and the last are
    /// kept.
    readings: VecDeque<ProxyReading>,
    written: [Option<RulesWritten>; AddressFamily::COUNT],
    /// Why a sync of each family runs or is due, or may be, by the last reading. It is asked for much more often than
    /// kube-proxy is read.
    not_idle: [Option<Arc<str>>; AddressFamily::COUNT],
    /// The settings of the process. `None` if they were not read: then the defaults of kube-proxy count.
    settings: Option<ProxySettings>,
    /// The error of the last read, if it failed.
    failure: Option<ReadFailure>,
}

/// A read that failed.
#[derive(Clone, Debug)]
pub(crate) struct ReadFailure {
    /// The error.
    pub(crate) why: String,
    /// True if the connection was established but there was no response.
    pub(crate) hangs: bool,
}

/// At a moment, kube-proxy had written all changes of a family that it had received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RulesWritten {
    /// The moment, by the clock of this process.
    at: UnixNanos,
    /// An upper bound for the time when it last received a change, by the clock of this process.
    received: UnixNanos,
}

/// The progress of a change in the rules of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RulesState {
    /// The rules contain the change.
    Written,
    /// The rules contain all that kube-proxy had received. It is not known that this includes the change. The text is
    /// the reason.
    Unconfirmed(Arc<str>),
    /// The rules do not contain the change yet, or this is not known yet. The text is the reason.
    Pending(Arc<str>),
    /// kube-proxy has received no change since. Its watch may be interrupted.
    Stale(Arc<str>),
    /// kube-proxy hangs, or no longer responds. It may forward traffic by outdated rules.
    Unresponsive(Arc<str>),
    /// kube-proxy could never be read.
    Unreadable(Arc<str>),
}

impl KubeProxyState {
    /// Adds a reading.
    pub(crate) fn add_reading(&mut self, reading: ProxyReading) {
        self.failure = None;
        if self.readings.back().is_some_and(|last| last.started != reading.started) {
            // kube-proxy was restarted: the readings of the old process prove nothing.
            self.readings.clear();
            self.settings = None;
            self.written = [None; AddressFamily::COUNT];
        }
        let length = self.readings.len();
        if length >= 2 && self.readings.range(length - 2..).all(|kept| kept.has_same_values(&reading)) {
            self.readings.pop_back();
        }
        if self.readings.len() >= MAX_READINGS {
            self.readings.pop_front();
        }
        self.readings.push_back(reading);
        for family in AddressFamily::ALL {
            let idle = self.check_idle(family);
            let proven = self.last_written(family, idle.is_ok());
            let known = &mut self.written[family.index()];
            if proven.is_some_and(|proven| known.is_none_or(|known| known.at < proven.at)) {
                *known = proven;
            }
            self.not_idle[family.index()] = idle.err().map(Into::into);
        }
    }

    /// Sets the settings of the process that was last read.
    pub(crate) fn set_settings(&mut self, settings: ProxySettings) {
        self.settings = Some(settings);
        for family in AddressFamily::ALL {
            self.not_idle[family.index()] = self.check_idle(family).err().map(Into::into);
        }
    }

    /// Returns true if the settings of the process with this `started` of [`ProxyReading`] are known.
    pub(crate) fn knows_settings_of(&self, started: f64) -> bool {
        let is_last = self.readings.back().is_some_and(|last| last.started.total_cmp(&started).is_eq());
        is_last && self.settings.is_some()
    }

    /// Records that a read failed.
    pub(crate) fn add_failure(&mut self, failure: ReadFailure) {
        self.failure = Some(failure);
    }

    /// Returns true if all reads have failed.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.failure.is_some() && self.readings.is_empty()
    }

    /// Returns the progress of the changes `changed`, one for each address family. The least progress counts.
    pub(crate) fn rules_state(&self, changed: &[Option<EndpointChange>; AddressFamily::COUNT]) -> RulesState {
        let mut state = RulesState::Written;
        for family in AddressFamily::ALL {
            let Some(change) = changed[family.index()] else { continue };
            match self.family_rules_state(family, change) {
                RulesState::Written => {}
                // `Pending` says that kube-proxy works. It takes precedence over the states where this is unknown.
                pending @ RulesState::Pending(_) => return pending,
                RulesState::Unconfirmed(_) if state != RulesState::Written => {}
                other => state = other,
            }
        }
        state
    }

    fn family_rules_state(&self, family: AddressFamily, change: EndpointChange) -> RulesState {
        let received_by = after(change.seen, WATCH_LAG);
        if let Some(written) = self.written[family.index()]
            && written.at >= received_by
        {
            if written.received >= change.received_from {
                return RulesState::Written;
            }
            if self.failure.is_none() && change.not_before.is_none_or(|time| written.received >= time) {
                let why = "it has received no update since the traffic-controller listed the slices";
                return RulesState::Unconfirmed(why.into());
            }
            if self.failure.is_none() {
                let silence = between(written.received, change.seen).as_secs_f64();
                let why = format!("it had received no update for {silence:.1} s when the slice changed");
                return RulesState::Stale(why.into());
            }
        }
        if let Some(failure) = &self.failure {
            let was_reachable = failure.hangs || !self.readings.is_empty();
            let why = failure.why.as_str().into();
            return if was_reachable { RulesState::Unresponsive(why) } else { RulesState::Unreadable(why) };
        }
        let Some(last) = self.readings.back() else {
            return RulesState::Pending("its metrics were not read yet".into());
        };
        if last.asked < received_by {
            return RulesState::Pending("its metrics were not read since the change".into());
        }
        if last.families[family.index()].is_none() {
            let family = family.as_str();
            let why = format!(
                "its metrics have no syncs with ip_family {family}, as those of kube-proxy before 1.33"
            );
            return RulesState::Unreadable(why.into());
        }
        let why = self.not_idle[family.index()].clone();
        RulesState::Pending(why.unwrap_or_else(|| "its rules are being written".into()))
    }

    /// Returns the latest moment at which, as the readings prove, all changes of `family` that kube-proxy had received
    /// were written. `is_idle` is the result of [`check_idle`](Self::check_idle). `None` if they prove nothing.
    fn last_written(&self, family: AddressFamily, is_idle: bool) -> Option<RulesWritten> {
        let index = family.index();
        let written = |reading: &ProxyReading| {
            let received = reading.in_local_time(reading.families[index]?.queued);
            Some(RulesWritten { at: reading.asked, received })
        };
        if is_idle {
            return written(self.readings.back()?);
        }
        let begin = self.begin_of_last_sync(family)?;
        let is_included = |reading: &&ProxyReading| {
            reading.families[index].is_some_and(|values| values.queued <= begin.at_least)
        };
        written(self.readings.iter().rev().find(is_included)?)
    }

    /// Checks that no sync of `family` runs and that none is due.
    ///
    /// # Errors
    /// Returns why this is not so, or not known yet.
    fn check_idle(&self, family: AddressFamily) -> Result<(), String> {
        let index = family.index();
        let Some((last, now)) = self.readings.back().and_then(|last| Some((last, last.families[index]?)))
        else {
            return Err("its metrics were not read yet".to_owned());
        };
        if last.pending > 0 {
            return Err(format!("{} changes are pending", last.pending));
        }
        if now.synced < now.queued {
            let seconds = Duration::from_nanos((now.queued - now.synced).unsigned_abs()).as_secs_f64();
            return Err(format!("a change was queued {seconds:.2} s after its rules were last written"));
        }
        let settings = self.settings.unwrap_or_default();
        let window = match self.begin_of_last_sync(family) {
            // The sync seems to have begun before the change, so another one seems to be due. It is not if the sync only
            // ended long after its timestamp, as on a busy node: then no other one comes.
            Some(begin) if begin.is_exact && begin.at_least + TIMESTAMP_ACCURACY < now.queued => {
                now.longest * SLOW_SYNC + settings.min_sync_period
            }
            _ if self.last_sync_may_have_failed(family) => now.longest + settings.sync_period,
            Some(begin) if begin.is_exact && last.pending_is_reliable(family) => WATCH_LAG.max(now.longest),
            _ => WATCH_LAG.max(now.longest) + settings.min_sync_period,
        };
        let idle = self.unchanged_for(|reading| reading.is_idle_until(last, family));
        if idle < window {
            return Err(format!("idle for {} ms of {} ms", idle.as_millis(), window.as_millis()));
        }
        Ok(())
    }

    /// Returns true unless the readings show that the last sync succeeded.
    fn last_sync_may_have_failed(&self, family: AddressFamily) -> bool {
        let mut earlier = self.readings.iter().rev().filter_map(|reading| reading.families[family.index()]);
        let Some(now) = earlier.next() else { return false };
        let before = earlier.find(|then| (then.synced, then.failures) != (now.synced, now.failures));
        now.failures > 0 && before.is_none_or(|then| then.failures < now.failures)
    }

    /// Returns when the last successful sync began, by the clock of the node: its end minus the duration of all syncs
    /// since the last reading that contains none of them. `None` if there is no such reading, or if the sync that
    /// ended last may not be counted yet.
    fn begin_of_last_sync(&self, family: AddressFamily) -> Option<SyncBegin> {
        let of = |reading: &ProxyReading| reading.families[family.index()];
        let now = of(self.readings.back()?)?;
        let is_same = |then: FamilyReading| then.syncs == now.syncs && then.synced == now.synced;
        if self.unchanged_for(|reading| of(reading).is_some_and(is_same)) < SYNC_CLEANUP {
            return None;
        }
        // A sync that has not been counted has set its timestamp: its duration is not known, and it may have begun
        // before the change.
        let is_before = |then: FamilyReading| then.syncs == now.syncs && then.synced < now.synced;
        if self.readings.iter().filter_map(of).any(is_before) {
            return None;
        }
        let is_older = |then: &FamilyReading| then.syncs < now.syncs && then.synced < now.synced;
        let base = self.readings.iter().rev().filter_map(of).find(is_older)?;
        let took = now.sync_nanos - base.sync_nanos;
        Some(SyncBegin { at_least: now.synced - took, is_exact: now.syncs - base.syncs == 1 })
    }

    /// Returns for how long `same` has held for all readings, up to the last.
    fn unchanged_for(&self, same: impl Fn(&ProxyReading) -> bool) -> Duration {
        let first = self.readings.iter().rev().take_while(|reading| same(reading)).last();
        let since = first.zip(self.readings.back());
        since.map_or(Duration::ZERO, |(first, last)| between(first.answered, last.asked))
    }
}

/// The time when a sync began.
struct SyncBegin {
    /// A lower bound in nanoseconds.
    at_least: i64,
    /// True if the sync began shortly after the lower bound.
    is_exact: bool,
}
