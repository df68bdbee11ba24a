use podward_core::hooks::EvidenceLevel::{self, Assumed, Bounded, Proven};
use proptest::prelude::*;

use super::*;
use crate::proxy::TakenIn;
use crate::world::{Carrier, Change, Facts, Key, Others, ServiceFacts, ServiceKind};

const WAITS: Waits = Waits {
    propagation: Duration::from_secs(5),
    quiet: Duration::from_secs(2),
    dns_ttl: Duration::from_secs(30),
    surge: Duration::from_secs(60),
};

fn at(milliseconds: i64) -> UnixNanos {
    UnixNanos(milliseconds * 1_000_000)
}

/// A Service whose slice shows the pod out.
fn out(name: &str) -> ServiceFacts {
    ServiceFacts {
        key: Key::new("shop", name),
        kind: ServiceKind::Proxied,
        exists: true,
        selects: true,
        has_selector: true,
        publishes_not_ready: false,
        slices: 1,
        ready: None,
        serving: None,
    }
}

fn ready(name: &str) -> ServiceFacts {
    ServiceFacts { ready: Some("s-1".into()), serving: Some("s-1".into()), ..out(name) }
}

/// What changed at 1 s.
fn facts(services: impl IntoIterator<Item = ServiceFacts>) -> Facts {
    let changed = Change { seen: at(1000), not_before: None };
    Facts { services: services.into_iter().collect(), changed: [Some(changed), None], ..Facts::default() }
}

fn node(name: &str, has: TakenIn) -> OneNode {
    OneNode { name: name.into(), ready: true, has }
}

fn all_have_it() -> Nodes {
    Nodes::Read(vec![node("n1", TakenIn::Yes), node("n2", TakenIn::Yes)])
}

fn done(verdict: Verdict) -> (EvidenceLevel, String) {
    match verdict {
        Verdict::Done(evidence) => (evidence.level, evidence.detail),
        Verdict::Pending { reason, .. } => panic!("waits: {reason}"),
    }
}

fn waits(verdict: Verdict) -> (String, Option<UnixNanos>) {
    match verdict {
        Verdict::Pending { reason, until } => (reason, until),
        Verdict::Done(evidence) => panic!("done: {}", evidence.detail),
    }
}

fn prepared(facts: &Facts, nodes: &Nodes, now: i64) -> Verdict {
    // Requests in flight have had their time.
    let mut progress = Progress { taken_in: Some(at(0)), ..Progress::default() };
    prepare(facts, nodes, &Flight::NotAsked, &mut progress, &WAITS, at(now))
}

#[test]
fn prepare_waits_for_every_slice() {
    for (service, words) in [
        (ready("web"), "EndpointSlice s-1 of Service shop/web still shows the pod ready"),
        (ServiceFacts { serving: Some("s-1".into()), ..out("web") }, "still shows the pod serving"),
        (ServiceFacts { has_selector: false, selects: false, ..ready("web") }, "whoever writes its slices"),
        (ServiceFacts { kind: ServiceKind::Headless, ..ready("web") }, "still shows the pod ready"),
    ] {
        let (reason, until) = waits(prepared(&facts([out("other"), service]), &all_have_it(), 60_000));
        assert!(reason.contains(words) && until.is_none(), "{reason}");
    }
}

#[test]
fn slices_of_a_service_that_is_gone_hold_nobody() {
    let gone = ServiceFacts { exists: false, selects: false, ..ready("gone") };
    let (bounded, words) = done(prepared(&facts([gone.clone()]), &all_have_it(), 3000));
    assert!(
        bounded == Bounded && words.contains("Service shop/gone, in whose slices it is, is gone"),
        "{words}"
    );
    let behind = Nodes::Read(vec![node("n1", TakenIn::NotYet("busy".to_owned()))]);
    waits(prepared(&facts([gone.clone()]), &behind, 3000));
    assert_eq!(done(release(&facts([gone]), false)).0, Assumed);
}

#[test]
fn a_service_that_the_pod_has_left_counts_as_one_that_it_is_in() {
    let changed = Change { seen: at(1000), not_before: None };
    let left = |carrier: Carrier| {
        let mut facts = facts([]);
        facts.left[carrier.index()] = Some(changed);
        facts
    };
    let behind = Nodes::Read(vec![node("n1", TakenIn::NotYet("busy".to_owned()))]);
    let (reason, _) = waits(prepared(&left(Carrier::KubeProxy), &behind, 60_000));
    assert!(reason.contains("no Service selects it; waits for kube-proxy of n1 (busy)"), "{reason}");
    let (bounded, words) = done(prepared(&left(Carrier::KubeProxy), &all_have_it(), 3000));
    assert_eq!(bounded, Bounded);
    assert_eq!(words, "no Service selects it; kube-proxy of 2 nodes has it; 2 s for requests in flight");
    assert_eq!(waits(prepared(&left(Carrier::Dns), &all_have_it(), 3000)).1, Some(at(31_000)));
    assert_eq!(waits(prepared(&left(Carrier::Other), &all_have_it(), 3000)).1, Some(at(6000)));
    assert_eq!(done(complete(&left(Carrier::KubeProxy), &behind, &WAITS, at(2000))).0, Proven);
    let unseen = Facts { unseen: Some(at(1000)), ..facts([]) };
    assert_eq!(waits(prepared(&unseen, &behind, 3000)).1, Some(at(8000)), "it may have left a moment ago");
    assert_eq!(done(prepared(&unseen, &behind, 8000)).0, Proven);
}

#[test]
fn a_service_that_has_not_named_the_pod_yet_gets_its_time() {
    let new = facts([ServiceFacts { slices: 0, ..out("new") }]);
    let mut progress = Progress::default();
    let mut look = |facts: &Facts, now| {
        prepare(facts, &all_have_it(), &Flight::NotAsked, &mut progress, &WAITS, at(now))
    };
    let (reason, until) = waits(look(&new, 2000));
    assert!(reason.contains("shop/new names the pod yet") && until == Some(at(7000)), "{reason}");
    // What comes may be old: it counts all the same.
    assert!(waits(look(&facts([ready("new")]), 2500)).0.contains("still shows the pod ready"));
    assert!(waits(look(&facts([out("new")]), 3000)).0.contains("in flight"));
    done(look(&facts([out("new")]), 5000));
    let mut progress = Progress::default();
    let mut look = |now| prepare(&new, &all_have_it(), &Flight::NotAsked, &mut progress, &WAITS, at(now));
    waits(look(2000));
    assert!(waits(look(7000)).0.contains("in flight"), "one that never does is not waited for");
    done(look(9000));
}

#[test]
fn prepare_says_what_it_knows() {
    let level =
        |services: Vec<ServiceFacts>, nodes: &Nodes, now| done(prepared(&facts(services), nodes, now));
    // The quiet period bounds what was proven of the proxies.
    let (bounded, words) = level(vec![out("web")], &all_have_it(), 3000);
    assert_eq!(bounded, Bounded);
    assert_eq!(
        words,
        "not ready in 1 slice of Service shop/web; kube-proxy of 2 nodes has it; 2 s for requests in flight"
    );
    let (none, words) = level(vec![], &Nodes::Unread, 1000);
    assert_eq!((none, words.as_str()), (Proven, "no Service selects it"));
    let name = ServiceFacts { kind: ServiceKind::ExternalName, ..ready("name") };
    assert_eq!(level(vec![name], &Nodes::Unread, 1000).0, Proven);
    let always = ServiceFacts { publishes_not_ready: true, ..ready("always") };
    let (assumed, words) = level(vec![always.clone()], &Nodes::Unread, 1000);
    assert!(assumed == Assumed && words.contains("publishes addresses that are not ready"), "{words}");
    let (assumed, _) = level(vec![always, out("web")], &all_have_it(), 60_000);
    assert_eq!(assumed, Assumed, "the weakest counts");
}

#[test]
fn proxies_that_cannot_be_read_get_their_time() {
    let web = facts([out("web")]);
    let (reason, until) = waits(prepared(&web, &Nodes::Unread, 3000));
    assert!(reason.contains("2.0 of 5 s") && until == Some(at(6000)), "{reason}");
    assert_eq!(done(prepared(&web, &Nodes::Unread, 6000)).0, Bounded);

    let unreadable =
        Nodes::Read(vec![node("n1", TakenIn::Yes), node("n2", TakenIn::Unreadable("refused".to_owned()))]);
    let (reason, until) = waits(prepared(&web, &unreadable, 3000));
    assert!(reason.contains("n2 (refused)") && until == Some(at(6000)), "{reason}");
    let (bounded, words) = done(prepared(&web, &unreadable, 6000));
    assert!(bounded == Bounded && words.contains("n2 (refused)"), "{words}");
}

#[test]
fn a_proxy_that_is_seen_to_be_behind_is_waited_for_without_end() {
    let behind = Nodes::Read(vec![node("n1", TakenIn::NotYet("3 changes are pending".to_owned()))]);
    let (reason, until) = waits(prepared(&facts([out("web")]), &behind, 3_600_000));
    assert!(reason.contains("n1 (3 changes are pending)") && until.is_none(), "{reason}");
    let deaf = Nodes::Read(vec![node("n1", TakenIn::Unheard("deaf".to_owned()))]);
    assert_eq!(waits(prepared(&facts([out("web")]), &deaf, 20_000)).1, Some(at(31_000)));
    assert_eq!(done(prepared(&facts([out("web")]), &deaf, 31_000)).0, Bounded);
    let silent = Nodes::Read(vec![node("n1", TakenIn::Silent("no answer".to_owned()))]);
    assert_eq!(waits(prepared(&facts([out("web")]), &silent, 20_000)).1, Some(at(31_000)));
    let (bounded, words) = done(prepared(&facts([out("web")]), &silent, 31_000));
    assert!(bounded == Bounded && words.contains("30 s or more were waited for that of n1"), "{words}");
}

#[test]
fn nodes_that_are_not_ready_are_left_out_and_named() {
    let lost = OneNode { ready: false, ..node("lost", TakenIn::NotYet(String::new())) };
    let nodes = Nodes::Read(vec![node("n1", TakenIn::Yes), lost.clone()]);
    let taken_in = Flight::Count(0, at(5000));
    let mut progress = Progress { taken_in: Some(at(2000)), idle: Some(at(4000)), ..Progress::default() };
    let (proven, words) =
        done(prepare(&facts([out("web")]), &nodes, &taken_in, &mut progress, &WAITS, at(5000)));
    assert!(proven == Proven && words.contains("left out as not Ready: lost"), "{words}");
    let alone = Nodes::Read(vec![lost]);
    assert_eq!(waits(prepared(&facts([out("web")]), &alone, 2000)).1, Some(at(6000)));
    assert_eq!(done(prepared(&facts([out("web")]), &alone, 6000)).0, Bounded, "nobody can be vouched for");
}

#[test]
fn headless_services_and_other_proxies_get_their_time() {
    for (kind, wait, words) in
        [(ServiceKind::Headless, 31_000, "DNS"), (ServiceKind::OtherProxy, 6000, "not kube-proxy")]
    {
        let web = facts([ServiceFacts { kind, ..out("web") }]);
        let (reason, until) = waits(prepared(&web, &all_have_it(), wait - 1));
        assert!(reason.contains(words) && until == Some(at(wait)), "{reason}");
        assert_eq!(done(prepared(&web, &all_have_it(), wait)).0, Bounded);
    }
}

#[test]
fn requests_in_flight_end_or_get_their_time() {
    let web = facts([out("web")]);
    let mut progress = Progress::default();
    let mut look =
        |flight: &Flight, now| prepare(&web, &all_have_it(), flight, &mut progress, &WAITS, at(now));
    let (reason, until) = waits(look(&Flight::NotAsked, 2000));
    assert!(reason.contains("0.0 of 2 s") && until == Some(at(4000)), "{reason}");
    assert!(waits(look(&Flight::Unknown, 2000)).0.contains("asks the pod"));
    assert!(
        waits(look(&Flight::Count(0, at(1999)), 2100)).0.contains("again"),
        "asked before the proxies had it"
    );
    assert!(
        waits(look(&Flight::Count(3, at(9000)), 9000)).0.contains("3 are in flight"),
        "however long it takes"
    );
    assert!(waits(look(&Flight::Count(0, at(9100)), 9100)).0.contains("once"));
    assert!(waits(look(&Flight::Count(1, at(9300)), 9300)).0.contains("1 are in flight"));
    assert!(waits(look(&Flight::Count(0, at(9400)), 9400)).0.contains("once"), "from the beginning");
    let (proven, words) = done(look(&Flight::Count(0, at(9600)), 9600));
    assert!(proven == Proven && words.ends_with("the pod says that nothing is in flight"), "{words}");
    let (bounded, words) = done(look(&Flight::Failed("refused".to_owned()), 9700));
    assert!(bounded == Bounded && words.contains("refused"), "{words}");
}

#[test]
fn a_pod_that_comes_back_into_a_slice_begins_again() {
    let mut progress = Progress::default();
    let nodes = all_have_it();
    let mut look =
        |facts: &Facts, now| prepare(facts, &nodes, &Flight::NotAsked, &mut progress, &WAITS, at(now));
    waits(look(&facts([out("web")]), 2000));
    waits(look(&facts([ready("web")]), 3000));
    let (_, until) = waits(look(&facts([out("web")]), 4500));
    assert_eq!(until, Some(at(6500)));
    done(look(&facts([out("web")]), 6500));
}

#[test]
fn complete_waits_for_all_services_that_select_the_pod() {
    let look =
        |services: Vec<ServiceFacts>, nodes: &Nodes, now| complete(&facts(services), nodes, &WAITS, at(now));
    assert_eq!(done(look(vec![], &Nodes::Unread, 0)), (Proven, "no Service selects it".to_owned()));
    let (reason, _) =
        waits(look(vec![ready("a"), ServiceFacts { slices: 0, ..out("b") }], &all_have_it(), 0));
    assert_eq!(reason, "no EndpointSlice of Service shop/b names the pod yet");
    assert!(waits(look(vec![out("b")], &all_have_it(), 0)).0.contains("shows the pod ready yet"));
    let strange = ServiceFacts { selects: false, has_selector: false, ..out("by-hand") };
    assert_eq!(done(look(vec![strange], &Nodes::Unread, 0)).0, Proven, "nobody promised that it comes");
    let (proven, words) = done(look(vec![ready("a")], &all_have_it(), 1000));
    assert!(
        proven == Proven && words == "ready in the slices of shop/a; kube-proxy of 2 nodes has it",
        "{words}"
    );
    assert_eq!(waits(look(vec![ready("a")], &Nodes::Unread, 2000)).1, Some(at(6000)));
    let headless = ServiceFacts { kind: ServiceKind::Headless, ..ready("a") };
    assert_eq!(done(look(vec![headless], &Nodes::Unread, 1000)).0, Proven, "found with the next DNS answer");
}

#[test]
fn release_waits_for_slices_and_for_no_node() {
    assert_eq!(done(release(&facts([]), false)).0, Proven);
    assert_eq!(done(release(&facts([out("web")]), false)).0, Assumed);
    assert!(waits(release(&facts([ready("web")]), false)).0.contains("still shows the pod ready"));
    assert!(done(release(&facts([ready("web")]), true)).1.contains("opted out"));
    for others in [
        ServiceFacts { publishes_not_ready: true, ..ready("always") },
        ServiceFacts { has_selector: false, ..ready("by-hand") },
    ] {
        assert_eq!(done(release(&facts([others]), false)).0, Assumed, "would never end");
    }
}

#[test]
fn the_last_endpoint_stays_for_a_while() {
    let service =
        |ready, coming| ServiceOthers { key: Key::new("shop", "web"), others: Others { ready, coming } };
    let look = |services: &[ServiceOthers], now| pre_check(services, &WAITS, at(0), at(now));
    assert_eq!(done(look(&[], 0)).0, Proven);
    let (proven, words) = done(look(&[service(2, 0), service(1, 4)], 0));
    assert_eq!((proven, words.as_str()), (Proven, "Service shop/web keeps 1 other ready endpoint"));
    assert!(done(look(&[service(0, 0)], 0)).1.contains("no other is on its way"));
    let (reason, until) = waits(look(&[service(3, 0), service(0, 1)], 59_999));
    assert!(reason.contains("1 other not ready yet") && until == Some(at(60_000)), "{reason}");
    assert_eq!(done(look(&[service(0, 1)], 60_000)).0, Assumed);
}

fn any_has() -> impl Strategy<Value = TakenIn> {
    prop_oneof![
        Just(TakenIn::Yes),
        Just(TakenIn::NotYet("a".to_owned())),
        Just(TakenIn::Unheard("b".to_owned())),
        Just(TakenIn::Unreadable("c".to_owned())),
        Just(TakenIn::Silent("d".to_owned())),
    ]
}

fn any_service() -> impl Strategy<Value = ServiceFacts> {
    let kinds =
        [ServiceKind::Proxied, ServiceKind::Headless, ServiceKind::ExternalName, ServiceKind::OtherProxy];
    (prop::sample::select(kinds.to_vec()), any::<[bool; 5]>()).prop_map(|(kind, bits)| ServiceFacts {
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
    /// PROVEN means: in no slice, in all proxies' rules, and nothing in flight.
    #[test]
    fn proven_is_what_was_seen(
        services in prop::collection::vec(any_service(), 0..4),
        nodes in prop::collection::vec((any::<bool>(), any_has()), 0..4),
        readable in any::<bool>(),
        flight in prop_oneof![
            Just(Flight::NotAsked), Just(Flight::Unknown), Just(Flight::Failed("x".to_owned())),
            (0_u64..2, 0_i64..100_000).prop_map(|(count, time)| Flight::Count(count, at(time))),
        ],
        times in prop::collection::vec(0_i64..100_000, 1..6),
    ) {
        let nodes: Vec<_> = nodes.into_iter().map(|(ready, has)| OneNode { ready, ..node("n", has) }).collect();
        let known = if readable { Nodes::Read(nodes.clone()) } else { Nodes::Unread };
        let facts = facts(services.clone());
        let (mut progress, mut times) = (Progress::default(), times);
        times.sort_unstable();
        for now in times {
            match prepare(&facts, &known, &flight, &mut progress, &WAITS, at(now)) {
                Verdict::Done(evidence) => {
                    let counts = |service: &&ServiceFacts| {
                        service.kind != ServiceKind::ExternalName && !service.publishes_not_ready
                    };
                    prop_assert!(services.iter().filter(counts).all(|s| s.ready.is_none() && s.serving.is_none()));
                    prop_assert!(evidence.detail.len() <= 1024 && !evidence.detail.is_empty());
                    if evidence.level == Proven && services.iter().filter(counts).count() > 0 {
                        prop_assert!(matches!(flight, Flight::Count(0, _)));
                        let proxied = services.iter().filter(counts).any(|s| s.kind == ServiceKind::Proxied);
                        prop_assert!(!proxied || readable);
                        prop_assert!(!proxied || nodes.iter().all(|node| !node.ready || node.has == TakenIn::Yes));
                    }
                }
                Verdict::Pending { reason, until } => {
                    prop_assert!(!reason.is_empty());
                    prop_assert!(until.is_none_or(|until| until > at(now)), "a time that has passed wakes nobody");
                }
            }
        }
    }
}
