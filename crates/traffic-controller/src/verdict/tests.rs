mod complete;
mod connections;
mod interrupted;
mod kubelet;
mod last_endpoint;
mod never_ready;
mod observed;

use std::time::Duration;

use podward_core::UnixNanos;
use podward_core::hooks::EvidenceLevel::{self, Assumed, Bounded, Proven};

use super::*;
use crate::index::{
    AddressFamily, DataPath, EndpointChange, LocalEndpoints, LocalPolicy, ObjectKey, OtherEndpoints,
    PodEndpoints, ServiceKind, ServiceMembership,
};
use crate::proxy::RulesState;

const WAIT_TIMES: WaitTimes = WaitTimes {
    propagation: Duration::from_secs(5),
    quiet: Duration::from_secs(2),
    connections: Duration::from_secs(60),
    dns_ttl: Duration::from_secs(30),
    surge: Duration::from_secs(60),
};

fn at(milliseconds: i64) -> UnixNanos {
    UnixNanos(milliseconds * 1_000_000)
}

/// Returns a Service whose slice shows the pod as not ready.
fn out(name: &str) -> ServiceMembership {
    ServiceMembership {
        key: ObjectKey::new("shop", name),
        kind: ServiceKind::Proxied,
        exists: true,
        selects: true,
        has_selector: true,
        publishes_not_ready: false,
        slices: 1,
        ready: None,
        missing: [false; AddressFamily::COUNT],
        serving: None,
        bypass: None,
    }
}

fn ready(name: &str) -> ServiceMembership {
    ServiceMembership { ready: Some("s-1".into()), serving: Some("s-1".into()), ..out(name) }
}

/// Returns the endpoints of a pod that changed at 1 s.
fn endpoints(services: impl IntoIterator<Item = ServiceMembership>) -> PodEndpoints {
    let changed = EndpointChange::undated(at(1000));
    PodEndpoints {
        services: services.into_iter().collect(),
        changed: [Some(changed), None],
        ..PodEndpoints::default()
    }
}

fn node(name: &str, rules: RulesState) -> NodeProxy {
    NodeProxy { name: name.into(), not_ready_since: None, rules }
}

fn all_written() -> NodeProxies {
    NodeProxies::Read(vec![node("n1", RulesState::Written), node("n2", RulesState::Written)])
}

fn done(verdict: TrafficVerdict) -> (EvidenceLevel, String) {
    match verdict {
        TrafficVerdict::Done(evidence) => (evidence.level, evidence.detail),
        TrafficVerdict::Pending { reason, .. } => panic!("waits: {reason}"),
    }
}

fn waits(verdict: TrafficVerdict) -> (String, Option<UnixNanos>) {
    match verdict {
        TrafficVerdict::Pending { reason, until } => (reason, until),
        TrafficVerdict::Done(evidence) => panic!("done: {}", evidence.detail),
    }
}

/// Returns the progress of a question that was first evaluated while a slice showed the pod as ready.
fn seen_ready() -> PrepareProgress {
    PrepareProgress { saw_ready: true, ..PrepareProgress::default() }
}

fn prepared(pod: &PodEndpoints, nodes: &NodeProxies, now: i64) -> TrafficVerdict {
    // The quiet period is over.
    let mut progress = PrepareProgress { propagated_since: Some(at(0)), ..seen_ready() };
    prepare(pod, nodes, &InFlightCount::NotReported, &mut progress, &WAIT_TIMES, at(now))
}

#[test]
fn prepare_waits_for_every_slice() {
    for (service, words) in [
        (ready("web"), "EndpointSlice s-1 of Service shop/web still shows the pod as ready"),
        (ServiceMembership { serving: Some("s-1".into()), ..out("web") }, "still shows the pod as serving"),
        (
            ServiceMembership { has_selector: false, selects: false, ..ready("web") },
            "whoever writes its slices",
        ),
        (ServiceMembership { kind: ServiceKind::Headless, ..ready("web") }, "still shows the pod as ready"),
    ] {
        let (reason, until) = waits(prepared(&endpoints([out("other"), service]), &all_written(), 60_000));
        assert!(reason.contains(words) && until.is_none(), "{reason}");
    }
}

#[test]
fn slices_of_a_deleted_service_do_not_block() {
    let gone = ServiceMembership { exists: false, selects: false, ..ready("gone") };
    let (bounded, words) = done(prepared(&endpoints([gone.clone()]), &all_written(), 3000));
    assert!(
        bounded == Bounded && words.contains("Service shop/gone, whose slices list the pod, is deleted or"),
        "{words}"
    );
    let behind = NodeProxies::Read(vec![node("n1", RulesState::Pending("busy".into()))]);
    waits(prepared(&endpoints([gone.clone()]), &behind, 3000));
    assert_eq!(done(release(&endpoints([gone]), false)).0, Assumed);
}

#[test]
fn a_service_that_the_pod_has_left_counts_like_a_current_one() {
    let changed = EndpointChange::undated(at(1000));
    let left = |data_path: DataPath| {
        let mut endpoints = endpoints([]);
        endpoints.left[data_path.index()] = Some(changed);
        endpoints
    };
    let behind = NodeProxies::Read(vec![node("n1", RulesState::Pending("busy".into()))]);
    let (reason, _) = waits(prepared(&left(DataPath::KubeProxy), &behind, 60_000));
    assert!(reason.contains("no Service selects the pod; waiting for kube-proxy of n1 (busy)"), "{reason}");
    let (bounded, words) = done(prepared(&left(DataPath::KubeProxy), &all_written(), 3000));
    assert_eq!(bounded, Bounded);
    assert_eq!(
        words,
        "no Service selects the pod; kube-proxy of 2 nodes has applied the change; waited 2 s for requests in flight"
    );
    assert_eq!(waits(prepared(&left(DataPath::Dns), &all_written(), 3000)).1, Some(at(31_000)));
    assert_eq!(waits(prepared(&left(DataPath::OtherProxy), &all_written(), 3000)).1, Some(at(6000)));
    assert_eq!(done(complete(&left(DataPath::KubeProxy), &behind, &WAIT_TIMES, at(2000))).0, Proven);
    let unlisted = PodEndpoints { may_have_left_since: Some(at(1000)), ..endpoints([]) };
    assert_eq!(
        waits(prepared(&unlisted, &behind, 3000)).1,
        Some(at(33_000)),
        "it may have left a slice before, also of a headless Service"
    );
    for (now, expected) in [(33_000, Bounded), (600_999, Bounded), (601_000, Proven)] {
        let (level, words) = done(prepared(&unlisted, &behind, now));
        assert_eq!(
            (level, words.contains("and no proxy was read")),
            (expected, expected == Bounded),
            "{words}"
        );
    }
}

#[test]
fn a_service_that_does_not_list_the_pod_yet_is_waited_for() {
    let new = endpoints([ServiceMembership { slices: 0, ..out("new") }]);
    let mut progress = PrepareProgress::default();
    let mut look = |pod: &PodEndpoints, now| {
        prepare(pod, &all_written(), &InFlightCount::NotReported, &mut progress, &WAIT_TIMES, at(now))
    };
    let (reason, until) = waits(look(&new, 2000));
    assert!(reason.contains("shop/new lists the pod yet") && until == Some(at(7000)), "{reason}");
    // The first slice may be outdated. It counts nevertheless.
    assert!(waits(look(&endpoints([ready("new")]), 2500)).0.contains("still shows the pod as ready"));
    assert!(waits(look(&endpoints([out("new")]), 3000)).0.contains("in flight"));
    done(look(&endpoints([out("new")]), 5000));
    let mut progress = PrepareProgress::default();
    let mut look =
        |now| prepare(&new, &all_written(), &InFlightCount::NotReported, &mut progress, &WAIT_TIMES, at(now));
    waits(look(2000));
    assert!(waits(look(7000)).0.contains("in flight"), "the wait is bounded");
    done(look(9000));
}

#[test]
fn prepare_reports_the_evidence() {
    let level = |services: Vec<ServiceMembership>, nodes: &NodeProxies, now| {
        done(prepared(&endpoints(services), nodes, now))
    };
    // The quiet period lowers the evidence of the proxies from PROVEN to BOUNDED.
    let (bounded, words) = level(vec![out("web")], &all_written(), 3000);
    assert_eq!(bounded, Bounded);
    assert_eq!(
        words,
        "not ready in 1 slice of Service shop/web; kube-proxy of 2 nodes has applied the change; \
         waited 2 s for requests in flight"
    );
    let (none, words) = level(vec![], &NodeProxies::NotConfigured, 1000);
    assert_eq!((none, words.as_str()), (Proven, "no Service selects the pod"));
    let name = ServiceMembership { kind: ServiceKind::ExternalName, ..ready("name") };
    assert_eq!(level(vec![name], &NodeProxies::NotConfigured, 1000).0, Proven);
    let always = ServiceMembership { publishes_not_ready: true, ..ready("always") };
    let (assumed, words) = level(vec![always.clone()], &NodeProxies::NotConfigured, 1000);
    assert!(assumed == Assumed && words.contains("publishes addresses that are not ready"), "{words}");
    let (assumed, _) = level(vec![always, out("web")], &all_written(), 60_000);
    assert_eq!(assumed, Assumed, "the weakest evidence counts");
}

#[test]
fn proxies_that_cannot_be_read_are_waited_for() {
    let web = endpoints([out("web")]);
    let (reason, until) = waits(prepared(&web, &NodeProxies::NotConfigured, 3000));
    assert!(reason.contains("2.0 of 5 s") && until == Some(at(6000)), "{reason}");
    assert_eq!(done(prepared(&web, &NodeProxies::NotConfigured, 6000)).0, Bounded);

    let unreadable = NodeProxies::Read(vec![
        node("n1", RulesState::Written),
        node("n2", RulesState::Unreadable("refused".into())),
    ]);
    let (reason, until) = waits(prepared(&web, &unreadable, 3000));
    assert!(reason.contains("n2 (refused)") && until == Some(at(6000)), "{reason}");
    let (bounded, words) = done(prepared(&web, &unreadable, 6000));
    assert!(bounded == Bounded && words.contains("n2 (refused)"), "{words}");
}

#[test]
fn a_proxy_that_has_not_applied_the_change_is_waited_for_and_named() {
    let behind = NodeProxies::Read(vec![
        node("n1", RulesState::Pending("3 changes are pending".into())),
        node("n2", RulesState::Written),
    ]);
    let (reason, until) = waits(prepared(&endpoints([out("web")]), &behind, 60_999));
    assert!(reason.contains("n1 (3 changes are pending)") && until == Some(at(61_000)), "{reason}");
    let (bounded, words) = done(prepared(&endpoints([out("web")]), &behind, 61_000));
    assert!(bounded == Bounded && words.contains("60 s for that of n1 (3 changes are pending)"), "{words}");
    let stale = NodeProxies::Read(vec![node("n1", RulesState::Stale("stale".into()))]);
    assert_eq!(waits(prepared(&endpoints([out("web")]), &stale, 20_000)).1, Some(at(31_000)));
    assert_eq!(done(prepared(&endpoints([out("web")]), &stale, 31_000)).0, Bounded);
    let unresponsive = NodeProxies::Read(vec![node("n1", RulesState::Unresponsive("no response".into()))]);
    assert_eq!(waits(prepared(&endpoints([out("web")]), &unresponsive, 20_000)).1, Some(at(31_000)));
    let (bounded, words) = done(prepared(&endpoints([out("web")]), &unresponsive, 31_000));
    assert!(bounded == Bounded && words.contains("waited at least 30 s for that of n1"), "{words}");
}

#[test]
fn nodes_that_are_not_ready_are_waited_for_and_named() {
    let lost = |since, rules| NodeProxy { not_ready_since: Some(at(since)), ..node("lost", rules) };
    let nodes = |lost: NodeProxy| NodeProxies::Read(vec![node("n1", RulesState::Written), lost]);
    let silent = || RulesState::Unreadable("refused".into());
    // Lost at 900 ms: it may be back within 30 s.
    let recent = nodes(lost(900, silent()));
    let (reason, until) = waits(prepared(&endpoints([out("web")]), &recent, 30_000));
    assert!(reason.contains("lost (not Ready; refused)") && until == Some(at(30_900)), "{reason}");
    let (bounded, words) = done(prepared(&endpoints([out("web")]), &recent, 30_900));
    assert!(bounded == Bounded && words.contains("lost (not Ready; refused)"), "{words}");
    // Lost for long, and lost after the change.
    let lost_for_long = nodes(lost(-600_000, silent()));
    assert_eq!(waits(prepared(&endpoints([out("web")]), &lost_for_long, 2000)).1, Some(at(6000)));
    assert_eq!(done(prepared(&endpoints([out("web")]), &lost_for_long, 6000)).0, Bounded);
    let lost_later = nodes(lost(20_000, RulesState::Unresponsive("no response".into())));
    assert_eq!(waits(prepared(&endpoints([out("web")]), &lost_later, 25_000)).1, Some(at(31_000)));
    // Its kube-proxy can still be read.
    let idle = InFlightCount::Count(0, at(5000));
    let mut progress =
        PrepareProgress { propagated_since: Some(at(2000)), idle_since: Some(at(4000)), ..seen_ready() };
    let works = nodes(lost(900, RulesState::Written));
    let (proven, words) =
        done(prepare(&endpoints([out("web")]), &works, &idle, &mut progress, &WAIT_TIMES, at(5000)));
    assert!(proven == Proven && words.contains("kube-proxy of 2 nodes"), "{words}");
    let none = NodeProxies::Read(vec![]);
    assert_eq!(waits(prepared(&endpoints([out("web")]), &none, 2000)).1, Some(at(6000)));
    assert_eq!(done(prepared(&endpoints([out("web")]), &none, 6000)).0, Bounded, "nothing was observed");
}

#[test]
fn headless_services_and_other_proxies_are_waited_for() {
    for (kind, wait, words) in
        [(ServiceKind::Headless, 31_000, "DNS"), (ServiceKind::OtherProxy, 6000, "not kube-proxy")]
    {
        let web = endpoints([ServiceMembership { kind, ..out("web") }]);
        let (reason, until) = waits(prepared(&web, &all_written(), wait - 1));
        assert!(reason.contains(words) && until == Some(at(wait)), "{reason}");
        assert_eq!(done(prepared(&web, &all_written(), wait)).0, Bounded);
    }
}

#[test]
fn requests_in_flight_are_waited_for() {
    let web = endpoints([out("web")]);
    let mut progress = seen_ready();
    let mut look = |flight: &InFlightCount, now| {
        prepare(&web, &all_written(), flight, &mut progress, &WAIT_TIMES, at(now))
    };
    let (reason, until) = waits(look(&InFlightCount::NotReported, 2000));
    assert!(reason.contains("0.0 of 2 s") && until == Some(at(4000)), "{reason}");
    assert!(waits(look(&InFlightCount::Unknown, 2000)).0.contains("reading the number"));
    assert!(
        waits(look(&InFlightCount::Count(0, at(1999)), 2100)).0.contains("again"),
        "read before the proxies had applied the change"
    );
    assert!(
        waits(look(&InFlightCount::Count(3, at(9000)), 9000)).0.contains("reports 3 requests in flight"),
        "without limit"
    );
    assert!(waits(look(&InFlightCount::Count(0, at(9100)), 9100)).0.contains("once"));
    assert!(waits(look(&InFlightCount::Count(1, at(9300)), 9300)).0.contains("reports 1 requests in flight"));
    assert!(
        waits(look(&InFlightCount::Count(0, at(9400)), 9400)).0.contains("once"),
        "the wait starts again"
    );
    let (proven, words) = done(look(&InFlightCount::Count(0, at(9600)), 9600));
    assert!(proven == Proven && words.ends_with("the pod reports no requests in flight"), "{words}");
    let (bounded, words) = done(look(&InFlightCount::Failed("refused".to_owned()), 9700));
    assert!(bounded == Bounded && words.contains("refused"), "{words}");
}

#[test]
fn a_pod_that_is_ready_again_starts_the_wait_again() {
    let mut progress = PrepareProgress::default();
    let nodes = all_written();
    let mut look = |pod: &PodEndpoints, now| {
        prepare(pod, &nodes, &InFlightCount::NotReported, &mut progress, &WAIT_TIMES, at(now))
    };
    waits(look(&endpoints([out("web")]), 2000));
    waits(look(&endpoints([ready("web")]), 3000));
    let (_, until) = waits(look(&endpoints([out("web")]), 4500));
    assert_eq!(until, Some(at(6500)));
    done(look(&endpoints([out("web")]), 6500));
}

#[test]
fn release_waits_for_slices_but_not_for_nodes() {
    assert_eq!(done(release(&endpoints([]), false)).0, Proven);
    assert_eq!(done(release(&endpoints([out("web")]), false)).0, Assumed);
    assert!(waits(release(&endpoints([ready("web")]), false)).0.contains("still shows the pod as ready"));
    assert!(done(release(&endpoints([ready("web")]), true)).1.contains("opted out"));
    for others in [
        ServiceMembership { publishes_not_ready: true, ..ready("always") },
        ServiceMembership { has_selector: false, ..ready("by-hand") },
    ] {
        assert_eq!(done(release(&endpoints([others]), false)).0, Assumed, "the slices never change");
    }
}

#[test]
fn who_bypasses_kube_proxy_is_waited_for_and_named() {
    let whom = "the proxies behind Ingress shop/web, which bypass kube-proxy";
    let bypassed = || Some(whom.to_owned());
    let web = |service| endpoints([ServiceMembership { bypass: bypassed(), ..service }]);
    let left = PodEndpoints {
        left: [Some(EndpointChange::undated(at(1000))), None, None],
        left_bypass: bypassed(),
        ..PodEndpoints::default()
    };
    for look in [
        &(|now| complete(&web(ready("web")), &all_written(), &WAIT_TIMES, at(now)))
            as &dyn Fn(i64) -> TrafficVerdict,
        &|now| prepared(&web(out("web")), &all_written(), now),
        &|now| prepared(&left, &all_written(), now),
    ] {
        let (reason, until) = waits(look(5999));
        assert!(reason.contains(&format!("waiting for {whom}")) && until == Some(at(6000)), "{reason}");
        let (level, detail) = done(look(6000));
        assert!(level == Bounded && detail.contains(&format!("waited 5 s for {whom}")), "{detail}");
    }
    let headless = ServiceMembership { kind: ServiceKind::Headless, ..ready("web") };
    assert_eq!(done(complete(&web(headless), &all_written(), &WAIT_TIMES, at(1000))).0, Proven);
}

/// The text comes first and says what to do, however many Services there are.
#[test]
fn who_ignores_the_gate_is_assumed_to_send_traffic() {
    let sender = "the load balancer of TargetGroupBinding shop/web";
    let bypassed = ServiceMembership { bypass: Some("the proxies behind it".into()), ..out("a") };
    let headless = ServiceMembership { kind: ServiceKind::Headless, ..out("d") };
    let services = [bypassed, out("b"), out("c"), headless];
    let pod = PodEndpoints { ignores_gate: Some(sender.into()), ..endpoints(services) };
    let (level, words) = done(prepared(&pod, &all_written(), 60_000));
    assert!(level == Assumed && words.starts_with(sender) && words.contains("preStop"), "{words}");
    assert!(words.contains("waited 5 s for the proxies behind it"), "{words}");
    assert_eq!(done(prepared(&endpoints([out("a")]), &all_written(), 60_000)).0, Bounded);
}

#[test]
fn a_proxy_that_may_not_have_received_the_change_is_waited_for() {
    let nodes = || NodeProxies::Read(vec![node("n1", RulesState::Unconfirmed("may lag".into()))]);
    let look = |now| complete(&endpoints([ready("web")]), &nodes(), &WAIT_TIMES, at(now));
    let (reason, until) = waits(look(5999));
    assert!(reason.contains("n1 (may lag)") && until == Some(at(6000)), "{reason}");
    let (level, detail) = done(look(6000));
    assert!(level == Bounded && detail.contains("n1 (may lag)"), "{detail}");
}
