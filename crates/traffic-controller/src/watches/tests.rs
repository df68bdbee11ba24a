use std::collections::BTreeMap;

use futures::{FutureExt, StreamExt, stream};
use podward_runtime::admin::Readiness;
use serde_json::json;

use super::*;
use crate::clock::Clock;
use crate::index::{ApiServers, TargetPod};

fn node() -> NodeObject {
    serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap()
}

#[test]
fn only_a_kind_that_does_not_exist_is_missing() {
    let failed = |code| {
        let status = kube::core::Status { code, ..kube::core::Status::default() };
        watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)))
    };
    assert!(is_missing_kind(Some(&failed(404))));
    assert!(!is_missing_kind(Some(&failed(403))) && !is_missing_kind(Some(&failed(500))));
    assert!(!is_missing_kind(None));
}

#[tokio::test]
async fn the_index_says_that_a_watch_is_interrupted_until_it_has_listed_all_objects() {
    let (shared, metrics) = (SharedIndex::new(Clock::start()), TrafficMetrics::new());
    let listed = Readiness::default().condition("nodes");
    let interrupted = || shared.index.lock().interrupted();
    let run = async |events: Vec<Event<NodeObject>>, end: Option<watcher::Error>| {
        let seen = std::cell::RefCell::new(Vec::new());
        let events = stream::iter(events.into_iter().map(Ok).chain(end.map(Err)));
        let events = events.inspect(|_| seen.borrow_mut().push(interrupted()));
        let _ = follow(events, &shared, &metrics, &listed, &mut 0).await;
        seen.into_inner()
    };
    assert_eq!(interrupted(), None, "the handler answers nothing before the first list");
    let all = || vec![Event::Init, Event::InitApply(node()), Event::InitDone, Event::Apply(node())];
    assert_eq!(run(all(), Some(watcher::Error::NoResourceVersion)).await, [None; 5]);
    assert_eq!(interrupted(), Some("Node"));
    run(vec![Event::Init, Event::InitApply(node())], None).await;
    assert_eq!(interrupted(), Some("Node"), "the list is incomplete");
    assert_eq!(run(all(), None).await, [Some("Node"), Some("Node"), Some("Node"), None]);
}

#[test]
fn a_watch_whose_changes_are_forgotten_is_restarted_at_once() {
    let expired = |code| {
        watcher::Error::WatchError(Box::new(kube::core::Status { code, ..kube::core::Status::default() }))
    };
    let long = Duration::from_secs(60);
    assert_eq!(restart_delay(Some(&expired(410)), 1, long), Duration::ZERO);
    for delay in [
        restart_delay(Some(&expired(410)), 1, Duration::from_secs(1)),
        restart_delay(Some(&expired(410)), 2, long),
        restart_delay(Some(&expired(500)), 1, long),
        restart_delay(None, 1, long),
    ] {
        assert!(delay >= Duration::from_millis(250), "{delay:?}");
    }
}

#[tokio::test]
async fn an_incomplete_list_does_not_change_the_state_of_the_watch() {
    let (shared, metrics) = (SharedIndex::new(Clock::start()), TrafficMetrics::new());
    let listed = Readiness::default().condition("nodes");
    let mut failures = 9;
    let mut run = async |events: Vec<Event<NodeObject>>| {
        let broken = Err(watcher::Error::NoResourceVersion);
        let events = stream::iter(events.into_iter().map(Ok).chain([broken]));
        let error = follow(events, &shared, &metrics, &listed, &mut failures).await;
        assert!(error.is_some_and(|error| !is_missing_kind(Some(&error))));
        (metrics.is_watch_up(NodeObject::KIND), failures)
    };
    metrics.set_watch_up(NodeObject::KIND, false);
    let begun = vec![Event::Init, Event::InitApply(node())];
    assert_eq!(run(begun.clone()).await, (false, 9));
    assert_eq!(run(vec![Event::Init, Event::InitDone]).await, (true, 0));
    // A new list while the watch works does not reset the state.
    assert_eq!(run(begun).await, (true, 0));
    metrics.set_watch_up(NodeObject::KIND, false);
    assert_eq!(run(vec![Event::Apply(node())]).await, (true, 0));
}

/// What such objects say is needed for PROVEN, but not for an answer.
#[tokio::test]
async fn objects_are_not_known_while_their_watch_is_interrupted() {
    use crate::index::{GrpcRoute, HttpRoute, Ingress, TargetGroupBinding};

    async fn until_broken<K: IndexedObject>(shared: &SharedIndex, events: Vec<Event<K>>, code: u16) {
        let status = kube::core::Status { code, ..kube::core::Status::default() };
        let end = watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)));
        let events = stream::iter(events.into_iter().map(Ok).chain([Err(end)]));
        let (metrics, listed) = (TrafficMetrics::new(), Readiness::default().condition("objects"));
        let _ = follow(events, shared, &metrics, &listed, &mut 0).await;
    }
    async fn unknown_after<K: IndexedObject>(code: u16) -> (String, ApiServers) {
        let shared = SharedIndex::new(Clock::start());
        let now = shared.clock.now();
        {
            let mut index = shared.index.lock();
            index.retain_routes::<Ingress>(&HashSet::new(), now);
            index.retain_routes::<HttpRoute>(&HashSet::new(), now);
            index.retain_routes::<GrpcRoute>(&HashSet::new(), now);
            index.retain_routes::<TargetGroupBinding>(&HashSet::new(), now);
            index.retain_namespaces(&HashSet::new());
            index.set_api_servers(&HashSet::from([ObjectKey::new("kube-system", "a")]), now);
            let web = json!({
                "metadata": {"name": "s", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.0.0.1"], "targetRef": {"uid": "a"}}],
            });
            let web: SliceObject = serde_json::from_value(web).unwrap();
            web.put(ObjectKey::new("shop", "s"), &mut index, true, now);
        }
        let look = || {
            let index = shared.index.lock();
            let pod = TargetPod {
                namespace: "shop".into(),
                name: "a".to_owned(),
                uid: "a".into(),
                addresses: Vec::new(),
                ports: Vec::new(),
                labels: BTreeMap::new(),
                node: String::new(),
                never_ready: false,
            };
            let endpoints = index.pod_endpoints(&pod);
            let [service] = &endpoints.services[..] else { panic!("{endpoints:?}") };
            assert_eq!(endpoints.interrupted, None, "the answer waits for other kinds only");
            (service.bypass.clone().unwrap_or_default(), index.api_servers(now))
        };
        until_broken::<K>(&shared, Vec::new(), code).await;
        let interrupted = look();
        until_broken::<K>(&shared, vec![Event::Init], code).await;
        assert_eq!(look(), interrupted, "the list is incomplete");
        let (metrics, listed) = (TrafficMetrics::new(), Readiness::default().condition("objects"));
        let again = stream::iter([Ok(Event::<K>::Init), Ok(Event::InitDone)]).chain(stream::pending());
        let mut failures = 0;
        let work = follow(again, &shared, &metrics, &listed, &mut failures);
        assert!(work.now_or_never().is_none());
        assert_eq!(look().0, "", "the objects are listed again");
        interrupted
    }

    for (kind, unknown) in [
        ("Ingress", unknown_after::<RouteObject<Ingress>>(500).await),
        ("HTTPRoute", unknown_after::<RouteObject<HttpRoute>>(500).await),
        ("GRPCRoute", unknown_after::<RouteObject<GrpcRoute>>(403).await),
        ("TargetGroupBinding", unknown_after::<RouteObject<TargetGroupBinding>>(500).await),
        ("Namespace", unknown_after::<NamespaceObject>(500).await),
    ] {
        assert!(unknown.0.contains(&format!("the objects of kind {kind} are not known")), "{unknown:?}");
        assert_eq!(unknown.1, ApiServers::One);
    }
    assert_eq!(unknown_after::<ApiServerLease>(500).await, (String::new(), ApiServers::Unknown));
    let missing = unknown_after::<RouteObject<HttpRoute>>(404).await;
    assert_eq!(missing, (String::new(), ApiServers::One), "a cluster without the kind has no objects of it");
}
