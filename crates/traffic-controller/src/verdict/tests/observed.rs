//! PROVEN, and each fact that rules it out.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// What one evaluation of PREPARE observes.
#[derive(Clone, Debug)]
struct Observed {
    pod: PodEndpoints,
    nodes: NodeProxies,
    count: InFlightCount,
}

/// A change of what is observed.
type Change = fn(&mut Observed);

/// The time from which nothing changes any more, in milliseconds, as in [`endpoints`].
const CHANGED: i64 = 1000;

/// Facts of which one suffices that nothing is PROVEN, whether a Service lists the pod or it has left one.
const NOT_PROVEN: [(&str, Change); 30] = [
    ("ready in a slice", |seen| seen.pod.services.push(ready("new"))),
    ("serving in a slice", |seen| {
        seen.pod.services.push(ServiceMembership { serving: Some("s-1".into()), ..out("new") });
    }),
    ("published although it is not ready", |seen| {
        seen.pod.services.push(ServiceMembership { publishes_not_ready: true, ..out("new") });
    }),
    ("in a headless Service", |seen| {
        seen.pod.services.push(ServiceMembership { kind: ServiceKind::Headless, ..out("new") });
    }),
    ("in a Service of another proxy", |seen| {
        seen.pod.services.push(ServiceMembership { kind: ServiceKind::OtherProxy, ..out("new") });
    }),
    ("in a Service with a bypass", |seen| {
        seen.pod.services.push(ServiceMembership { bypass: Some("a mesh".into()), ..out("new") });
    }),
    ("has left a headless Service", |seen| left(seen, DataPath::Dns)),
    ("has left a Service of another proxy", |seen| left(seen, DataPath::OtherProxy)),
    ("has left a Service with a bypass", |seen| seen.pod.left_bypass = Some("a mesh".into())),
    ("may have left a Service before the first list", |seen| {
        seen.pod.may_have_left_since = Some(at(CHANGED));
    }),
    ("may be listed by the address of its node", |seen| {
        seen.pod.may_be_listed_in = Some(Arc::new(ObjectKey::new("shop", "s-1")));
    }),
    ("a slice of others has its address", |seen| {
        seen.pod.also_sent_by = Some(Arc::new(ObjectKey::new("other", "s-1")));
    }),
    ("a load balancer ignores its gate", |seen| seen.pod.ignores_gate = Some("a target group".into())),
    ("a watch is interrupted", |seen| seen.pod.interrupted = Some("EndpointSlice")),
    ("was never Ready", |seen| seen.pod.never_sent = true),
    ("proxies are not read", |seen| seen.nodes = NodeProxies::NotConfigured),
    ("no node is known", |seen| seen.nodes = NodeProxies::Read(Vec::new())),
    ("a proxy has not written the change", |seen| add_node(seen, RulesState::Pending("a".into()))),
    ("a proxy is cut off", |seen| add_node(seen, RulesState::Stale("b".into()))),
    ("a proxy cannot be read", |seen| add_node(seen, RulesState::Unreadable("c".into()))),
    ("a proxy hangs", |seen| add_node(seen, RulesState::Unresponsive("d".into()))),
    ("a proxy may lag", |seen| add_node(seen, RulesState::Unconfirmed("e".into()))),
    ("nobody reports requests", |seen| seen.count = InFlightCount::NotReported),
    ("the pod was not read yet", |seen| seen.count = InFlightCount::Unknown),
    ("the pod cannot be read", |seen| seen.count = InFlightCount::Failed("f".into())),
    ("connections were not read yet", |seen| seen.count = InFlightCount::ConnectionsUnknown),
    ("connections cannot be read", |seen| seen.count = InFlightCount::ConnectionsFailed("g".into())),
    ("requests are in flight", |seen| {
        if let InFlightCount::Count(count, _) = &mut seen.count {
            *count = 1;
        } else if let InFlightCount::Connections(connections, _) = &mut seen.count {
            connections.open = 1;
        }
    }),
    ("the pod was read before", |seen| seen.count = InFlightCount::Count(0, at(CHANGED))),
    ("connections were read before", |seen| seen.count = connections(CHANGED)),
];

fn left(seen: &mut Observed, data_path: DataPath) {
    seen.pod.left[data_path.index()] = Some(EndpointChange::undated(at(CHANGED)));
}

fn add_node(seen: &mut Observed, rules: RulesState) {
    if let NodeProxies::Read(nodes) = &mut seen.nodes {
        nodes.push(node("n3", rules));
    }
}

fn connections(asked: i64) -> InFlightCount {
    let none = OpenConnections { open: 0, silent_for: Duration::from_secs(3600), rested: 0 };
    InFlightCount::Connections(none, at(asked))
}

/// Returns what suffices for PROVEN: all proxies have applied the change, and requests in flight were read `now`.
fn enough(has_left: bool, by_connections: bool, now: i64) -> Observed {
    let mut seen = Observed {
        pod: if has_left { endpoints([]) } else { endpoints([out("web")]) },
        nodes: all_written(),
        count: if by_connections { connections(now) } else { InFlightCount::Count(0, at(now)) },
    };
    if has_left {
        left(&mut seen, DataPath::KubeProxy);
    }
    seen
}

fn look(seen: &Observed, progress: &mut PrepareProgress, now: i64) -> TrafficVerdict {
    prepare(&seen.pod, &seen.nodes, &seen.count, progress, &WAIT_TIMES, at(now))
}

fn is_proven(answer: &TrafficVerdict) -> bool {
    matches!(answer, TrafficVerdict::Done(evidence) if evidence.level == Proven)
}

const BOTH: [bool; 2] = [false, true];

/// Returns whether any answer is PROVEN while the pod looks like this from the change on, however long that lasts.
fn is_ever_proven(observe: impl Fn(i64) -> Observed) -> bool {
    let mut progress = PrepareProgress::default();
    let times = [1000, 1500, 2000, 2300, 5000, 9000, 40_000, 70_000, 500_000];
    let answers = times.map(|now| look(&observe(now), &mut progress, now));
    answers.iter().any(is_proven)
}

#[test]
fn each_fact_alone_rules_out_proven() {
    for (has_left, by_connections) in BOTH.into_iter().flat_map(|has_left| BOTH.map(|by| (has_left, by))) {
        assert!(is_ever_proven(|now| enough(has_left, by_connections, now)), "nothing rules it out");
        for (fact, change) in NOT_PROVEN {
            let spoiled = |now| {
                let mut seen = enough(has_left, by_connections, now);
                change(&mut seen);
                seen
            };
            assert!(!is_ever_proven(spoiled), "{fact}, left {has_left}, connections {by_connections}");
        }
    }
}

#[test]
fn a_pod_without_services_that_may_have_left_one_is_not_proven() {
    let counts: [fn(i64) -> InFlightCount; 2] = [connections, |now| InFlightCount::Count(0, at(now))];
    for count in counts {
        let pod = |may_have_left_since| {
            let pod = PodEndpoints { may_have_left_since, ..PodEndpoints::default() };
            move |now| Observed { pod: pod.clone(), nodes: all_written(), count: count(now) }
        };
        assert!(is_ever_proven(pod(None)));
        assert!(is_ever_proven(pod(Some(at(-600_000)))), "it would have left it long ago");
        assert!(!is_ever_proven(pod(Some(at(CHANGED)))), "{:?}", count(0));
    }
}

/// The slice has a port that the pod does not declare, or is in another namespace. It is named, however many Services there
/// are.
#[test]
fn a_pod_that_other_slices_may_list_is_not_proven() {
    let counts: [fn(i64) -> InFlightCount; 3] =
        [connections, |now| InFlightCount::Count(0, at(now)), |_| InFlightCount::NotReported];
    let slice = || Some(Arc::new(ObjectKey::new("shop", "s-1")));
    let of_node = PodEndpoints { may_be_listed_in: slice(), ..PodEndpoints::default() };
    let of_others = PodEndpoints { also_sent_by: slice(), ..PodEndpoints::default() };
    let services = ["a", "b", "c", "d"].map(out).to_vec();
    let many = PodEndpoints {
        services,
        changed: [Some(EndpointChange::undated(at(CHANGED))), None],
        ..of_others.clone()
    };
    for (pod, count) in [of_node, of_others, many].iter().flat_map(|pod| counts.map(|count| (pod, count))) {
        let observe = |now| Observed { pod: pod.clone(), nodes: all_written(), count: count(now) };
        assert!(!is_ever_proven(observe), "{:?}", count(0));
        let mut progress = PrepareProgress::default();
        let mut looks = [1000, 9000, 70_000].map(|now| look(&observe(now), &mut progress, now)).into_iter();
        let answer = looks.find(|answer| matches!(answer, TrafficVerdict::Done(_)));
        let (level, words) = done(answer.expect("it does not wait for ever"));
        assert!(level == Assumed && words.contains("EndpointSlice shop/s-1"), "{words}");
    }
}

/// What the pod reports before the traffic has ended does not count.
#[test]
fn a_pod_that_reports_its_requests_and_may_have_left_a_service_waits_like_others() {
    let pod = PodEndpoints { may_have_left_since: Some(at(CHANGED)), ..PodEndpoints::default() };
    let mut progress = PrepareProgress::default();
    let mut look = |now| {
        let count = InFlightCount::Count(0, at(now));
        prepare(&pod, &all_written(), &count, &mut progress, &WAIT_TIMES, at(now))
    };
    for now in [1000, 32_999] {
        let (reason, until) = waits(look(now));
        assert!(reason.contains("may have left a Service") && until == Some(at(33_000)), "{reason}");
    }
    assert!(waits(look(33_000)).0.contains("has reported once"));
    let (level, words) = done(look(33_300));
    assert!(level == Bounded && words.contains("no proxy was read"), "{words}");
}

/// Facts that rule out PROVEN, for one evaluation.
fn facts() -> impl Strategy<Value = Vec<(&'static str, Change)>> {
    prop_oneof![1 => Just(Vec::new()), 2 => prop::sample::subsequence(NOT_PROVEN.to_vec(), 1..4)]
}

proptest! {
    /// Whatever was observed before, an answer is PROVEN only if no fact rules it out at that time. It is when none has
    /// for a while.
    #[test]
    fn proven_is_only_what_was_observed(
        steps in prop::collection::vec((0_i64..3000, facts()), 1..12),
        has_left in any::<bool>(),
        by_connections in any::<bool>(),
    ) {
        let mut progress = PrepareProgress::default();
        let mut now = CHANGED;
        let rest = [2000, 2000].map(|later| (later, Vec::new()));
        for (later, facts) in steps.into_iter().chain(rest) {
            now += later;
            let mut seen = enough(has_left, by_connections, now);
            facts.iter().for_each(|(_, change)| change(&mut seen));
            let answer = look(&seen, &mut progress, now);
            let names: Vec<&str> = facts.iter().map(|(fact, _)| *fact).collect();
            prop_assert!(!is_proven(&answer) || facts.is_empty(), "{names:?}: {answer:?}");
        }
        let answer = look(&enough(has_left, by_connections, now + 2000), &mut progress, now + 2000);
        prop_assert!(is_proven(&answer), "{answer:?}");
    }
}

fn any_rules() -> impl Strategy<Value = RulesState> {
    prop_oneof![
        Just(RulesState::Written),
        Just(RulesState::Pending("a".into())),
        Just(RulesState::Stale("b".into())),
        Just(RulesState::Unreadable("c".into())),
        Just(RulesState::Unresponsive("d".into())),
        Just(RulesState::Unconfirmed("e".into())),
    ]
}

fn any_service() -> impl Strategy<Value = ServiceMembership> {
    let kinds =
        [ServiceKind::Proxied, ServiceKind::Headless, ServiceKind::ExternalName, ServiceKind::OtherProxy];
    (prop::sample::select(kinds.to_vec()), any::<[bool; 5]>()).prop_map(|(kind, bits)| ServiceMembership {
        kind,
        selects: bits[0],
        has_selector: bits[0] || bits[1],
        publishes_not_ready: bits[2],
        ready: bits[3].then(|| "s".into()),
        serving: (bits[3] || bits[4]).then(|| "s".into()),
        ..out("web")
    })
}

proptest! {
    /// Nothing is done while a slice shows the pod as ready, and a wait ends in the future.
    #[test]
    fn no_slice_contradicts_an_answer(
        services in prop::collection::vec(any_service(), 0..4),
        nodes in prop::collection::vec((prop::option::of(-100_000_i64..100_000), any_rules()), 0..4),
        readable in any::<bool>(),
        flight in prop_oneof![
            Just(InFlightCount::NotReported), Just(InFlightCount::Unknown), Just(InFlightCount::Failed("x".to_owned())),
            (0_u64..2, 0_i64..100_000).prop_map(|(count, time)| InFlightCount::Count(count, at(time))),
            Just(InFlightCount::ConnectionsUnknown), Just(InFlightCount::ConnectionsFailed("x".to_owned())),
            (0_u32..2, 0_u64..5, 0_u32..2, 0_i64..100_000).prop_map(|(open, silent, rested, time)| {
                let silent_for = Duration::from_secs(silent);
                InFlightCount::Connections(OpenConnections { open, silent_for, rested }, at(time))
            }),
        ],
        times in prop::collection::vec(0_i64..100_000, 1..6),
    ) {
        let nodes = nodes
            .into_iter()
            .map(|(lost, rules)| NodeProxy { not_ready_since: lost.map(at), ..node("n", rules) })
            .collect();
        let known = if readable { NodeProxies::Read(nodes) } else { NodeProxies::NotConfigured };
        let endpoints = endpoints(services.clone());
        let (mut progress, mut times) = (PrepareProgress::default(), times);
        times.sort_unstable();
        for now in times {
            match prepare(&endpoints, &known, &flight, &mut progress, &WAIT_TIMES, at(now)) {
                TrafficVerdict::Done(evidence) => {
                    let counts = |service: &&ServiceMembership| {
                        service.kind != ServiceKind::ExternalName && !service.publishes_not_ready
                    };
                    prop_assert!(services.iter().filter(counts).all(|s| s.ready.is_none() && s.serving.is_none()));
                    prop_assert!(evidence.detail.len() <= 1024 && !evidence.detail.is_empty());
                }
                TrafficVerdict::Pending { reason, until } => {
                    prop_assert!(!reason.is_empty());
                    prop_assert!(until.is_none_or(|until| until > at(now)), "a time in the past causes no evaluation");
                }
            }
        }
    }
}
