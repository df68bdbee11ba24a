//! The answer to a question about a pod, and its evidence.

use std::time::Duration;

use podward_core::hooks::{EvidenceLevel, HookPhase};

/// Since when a registry shows what it should. Times are those of one monotonic clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShownAt {
    /// Since when every address that answers shows it.
    pub(crate) since: Duration,
    /// The addresses that do not answer. Empty after a removal, which waits for them.
    pub(crate) unreachable: Vec<String>,
    /// The last list that showed the instance in service after its removal.
    pub(crate) stale_list: Option<StaleList>,
}

/// A list of a registry that showed an instance in service after its removal, longer than the binding says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StaleList {
    /// When it was read.
    pub(crate) at: Duration,
    /// A text for people: which list, and what to do.
    pub(crate) problem: String,
}

/// How long a removal waits for those who have read the registry before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheWaits {
    /// How long the registry itself may show an older state to its clients.
    pub(crate) list_lag: Duration,
    /// How long clients use what they have read.
    pub(crate) clients: Duration,
}

/// The pause before a list that was older than it may be is read again.
const STALE_RETRY: Duration = Duration::from_secs(1);

impl ShownAt {
    /// Returns when lists are read that must not show a removed instance any more.
    pub(crate) fn lists_due(&self, waits: CacheWaits) -> Duration {
        let due = self.since + waits.list_lag;
        self.stale_list.as_ref().map_or(due, |stale| due.max(stale.at + STALE_RETRY))
    }

    /// Returns when no client uses a removed instance any more, if its lists do not show it at `lists_due`.
    pub(crate) fn unused_at(&self, waits: CacheWaits) -> Duration {
        let clean = self.since + waits.list_lag;
        self.stale_list.as_ref().map_or(clean, |stale| clean.max(stale.at)) + waits.clients
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is done.
    Done { level: EvidenceLevel, detail: String },
    /// It will be done at a time, if nothing changes.
    Pending { reason: String, until: Duration },
}

/// What a registry shows of a pod, for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShownPod<'a> {
    pub(crate) shown: &'a ShownAt,
    /// The name of the service in the registry.
    pub(crate) service: &'a str,
    /// The number of addresses of the registry.
    pub(crate) addresses: usize,
    /// False if the registry cannot be read, so that the change is only known to be accepted.
    pub(crate) can_read: bool,
}

/// Returns the answer to a question, where the registry shows what it should.
///
/// PROVEN needs every address, and for a removal that no client may use an older state. The wait for caches of clients is
/// an upper bound that nobody observes: BOUNDED.
pub(crate) fn verdict(phase: HookPhase, pod: ShownPod<'_>, waits: CacheWaits, now: Duration) -> Verdict {
    let ShownPod { shown, service, addresses, can_read } = pod;
    let wait = waits.list_lag + waits.clients;
    let removes = matches!(phase, HookPhase::Prepare);
    if removes {
        let until = shown.unused_at(waits);
        if now < until {
            let left = (until - now).as_secs_f64();
            let reason = format!(
                "service {service} does not have the pod any more; clients may use what they have read before for {left:.0} s \
                 more"
            );
            return Verdict::Pending { reason, until };
        }
    }
    let what = if removes { "does not have the pod in service" } else { "shows the pod as it should" };
    if !can_read {
        let detail = format!("the registry has accepted the change for service {service} and cannot be read");
        return Verdict::Done { level: EvidenceLevel::Assumed, detail };
    }
    if !shown.unreachable.is_empty() {
        let reached = addresses.saturating_sub(shown.unreachable.len());
        let detail = format!(
            "service {service} {what} at {reached} of {addresses} addresses; {} did not answer",
            shown.unreachable.join(", ")
        );
        return Verdict::Done { level: EvidenceLevel::Assumed, detail };
    }
    let every =
        if addresses == 1 { "the address".to_owned() } else { format!("each of {addresses} addresses") };
    match removes && !wait.is_zero() {
        true => Verdict::Done {
            level: EvidenceLevel::Bounded,
            detail: format!(
                "service {service} {what} at {every}; waited {} s for clients that have read it before",
                wait.as_secs()
            ),
        },
        false => Verdict::Done {
            level: EvidenceLevel::Proven,
            detail: format!("service {service} {what} at {every}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITS: CacheWaits =
        CacheWaits { list_lag: Duration::from_secs(30), clients: Duration::from_secs(10) };

    fn shown(since: u64) -> ShownAt {
        ShownAt { since: Duration::from_secs(since), unreachable: Vec::new(), stale_list: None }
    }

    #[test]
    fn clients_may_use_a_stale_list_from_when_it_was_read() {
        let seconds = Duration::from_secs;
        let mut shown = shown(100);
        assert_eq!((shown.lists_due(WAITS), shown.unused_at(WAITS)), (seconds(130), seconds(140)));
        shown.stale_list = Some(StaleList { at: seconds(150), problem: String::new() });
        assert_eq!((shown.lists_due(WAITS), shown.unused_at(WAITS)), (seconds(151), seconds(160)));
    }

    fn level(
        phase: HookPhase,
        change: impl FnOnce(&mut ShownPod<'_>),
        now: u64,
    ) -> Result<EvidenceLevel, Duration> {
        let shown = shown(100);
        let mut pod = ShownPod { shown: &shown, service: "web", addresses: 3, can_read: true };
        change(&mut pod);
        match verdict(phase, pod, WAITS, Duration::from_secs(now)) {
            Verdict::Done { level, .. } => Ok(level),
            Verdict::Pending { until, .. } => Err(until),
        }
    }

    #[test]
    fn a_removal_waits_for_caches() {
        assert_eq!(level(HookPhase::Prepare, |_| {}, 139), Err(Duration::from_secs(140)));
        assert_eq!(level(HookPhase::Prepare, |_| {}, 140), Ok(EvidenceLevel::Bounded));
        assert_eq!(level(HookPhase::Prepare, |pod| pod.can_read = false, 140), Ok(EvidenceLevel::Assumed));
    }

    #[test]
    fn an_addition_waits_for_nobody() {
        assert_eq!(level(HookPhase::Complete, |_| {}, 100), Ok(EvidenceLevel::Proven));
        let partly = ShownAt { unreachable: vec!["b".to_owned()], ..shown(0) };
        let pod = ShownPod { shown: &partly, service: "web", addresses: 3, can_read: true };
        let verdict = verdict(HookPhase::Complete, pod, WAITS, Duration::ZERO);
        assert_eq!(
            verdict,
            Verdict::Done {
                level: EvidenceLevel::Assumed,
                detail: "service web shows the pod as it should at 2 of 3 addresses; b did not answer"
                    .to_owned()
            }
        );
    }

    #[test]
    fn without_caches_a_removal_is_proven() {
        let shown = shown(0);
        let pod = ShownPod { shown: &shown, service: "web", addresses: 1, can_read: true };
        let none = CacheWaits { list_lag: Duration::ZERO, clients: Duration::ZERO };
        let verdict = verdict(HookPhase::Prepare, pod, none, Duration::ZERO);
        assert!(matches!(verdict, Verdict::Done { level: EvidenceLevel::Proven, .. }), "{verdict:?}");
    }
}
