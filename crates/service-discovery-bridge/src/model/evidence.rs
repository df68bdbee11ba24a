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
}

/// How long a removal waits for those who have read the registry before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheWaits {
    /// How long the registry itself may show an older state to its clients.
    pub(crate) list_lag: Duration,
    /// How long clients use what they have read.
    pub(crate) clients: Duration,
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
        let until = shown.since + wait;
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

    fn level(
        phase: HookPhase,
        change: impl FnOnce(&mut ShownPod<'_>),
        now: u64,
    ) -> Result<EvidenceLevel, Duration> {
        let shown = ShownAt { since: Duration::from_secs(100), unreachable: Vec::new() };
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
        let partly = ShownAt { since: Duration::ZERO, unreachable: vec!["b".to_owned()] };
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
        let shown = ShownAt { since: Duration::ZERO, unreachable: Vec::new() };
        let pod = ShownPod { shown: &shown, service: "web", addresses: 1, can_read: true };
        let none = CacheWaits { list_lag: Duration::ZERO, clients: Duration::ZERO };
        let verdict = verdict(HookPhase::Prepare, pod, none, Duration::ZERO);
        assert!(matches!(verdict, Verdict::Done { level: EvidenceLevel::Proven, .. }), "{verdict:?}");
    }
}
