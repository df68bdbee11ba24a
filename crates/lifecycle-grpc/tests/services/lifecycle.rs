//! Tests of operations and deletion requests.

use futures::future::join_all;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use podward_core::deletion::request::DeletionKind;
use podward_core::keys::{CONTROL_LABEL, HISTORY, SERVICE_READY_GATE, Stage, permission_key};
use podward_proto::v1;
use serde_json::json;
use tonic::Code;

use super::fixture::{Fixture, refusal, within};

fn pod(name: &str) -> Option<v1::PodReference> {
    Some(v1::PodReference { namespace: "shop".to_owned(), name: name.to_owned(), uid: String::new() })
}

fn begin(name: &str, id: &str, operation_type: &str) -> v1::BeginRequest {
    let operation = v1::Operation { id: id.to_owned(), r#type: operation_type.to_owned() };
    v1::BeginRequest { pod: pod(name), operation: Some(operation) }
}

fn steps(lifecycle: Option<v1::PodLifecycle>) -> Vec<(String, v1::Step)> {
    let states = lifecycle.unwrap().operations.into_iter();
    states.map(|state| (state.operation.as_ref().unwrap().id.clone(), state.step())).collect()
}

pub(crate) async fn an_operation_from_begin_to_finish(fixture: &Fixture) {
    fixture.pod("web").await;
    let mut operator = fixture.lifecycle("shop", "operator").await;
    let watch = v1::WatchRequest { pod: pod("web") };
    let mut watch = operator.watch(watch).await.unwrap().into_inner();
    let first = within(watch.message()).await.unwrap().unwrap();
    assert_eq!(steps(first.lifecycle), []);

    let begun = operator.begin(begin("web", "upgrade", "update")).await.unwrap().into_inner();
    let checking = vec![("upgrade".to_owned(), v1::Step::Checking)];
    assert_eq!(steps(begun.lifecycle.clone()), checking);
    let labels = fixture.pods().get("web").await.unwrap();
    assert!(labels.labels().contains_key(&Stage::PreCheck.key("upgrade")), "{:?}", labels.labels());
    let seen = within(watch.message()).await.unwrap().unwrap();
    assert_eq!(seen.lifecycle, begun.lifecycle);

    // A repeated call writes nothing. Another type is refused.
    operator.begin(begin("web", "upgrade", "update")).await.unwrap();
    assert_eq!(fixture.pods().get("web").await.unwrap().resource_version(), labels.resource_version());
    assert_eq!(refusal(operator.begin(begin("web", "upgrade", "restart")).await).0, Code::AlreadyExists);
    let finish = || v1::FinishRequest { pod: pod("web"), operation_id: "upgrade".to_owned() };
    assert_eq!(refusal(operator.finish(finish()).await).0, Code::FailedPrecondition);

    // The leader writes this when all consumers have released the pod.
    let granted = json!({"metadata": {"labels": {
        (Stage::PreCheck.key("upgrade")): null, (Stage::PreChecked.key("upgrade")): "1",
        (Stage::Operate.key("upgrade")): "1", (permission_key("update")): "1",
    }}, "status": {"conditions": [{"type": SERVICE_READY_GATE, "status": "False"}]}});
    let params = PatchParams::default();
    fixture.pods().patch_status("web", &params, &Patch::Merge(&granted)).await.unwrap();
    let seen = within(watch.message()).await.unwrap().unwrap();
    assert_eq!(steps(seen.lifecycle), [("upgrade".to_owned(), v1::Step::Operating)]);
    for _ in 0..2 {
        let finished = operator.finish(finish()).await.unwrap().into_inner();
        assert_eq!(steps(finished.lifecycle), [("upgrade".to_owned(), v1::Step::Finished)]);
    }
    within(watch.message()).await.unwrap().unwrap();
    let cancel = v1::CancelRequest { pod: pod("web"), operation_id: "upgrade".to_owned() };
    for _ in 0..2 {
        let cancelled = operator.cancel(cancel.clone()).await.unwrap().into_inner();
        assert_eq!(steps(cancelled.lifecycle), []);
    }
    let labels = fixture.pods().get("web").await.unwrap();
    assert_eq!(labels.labels().keys().map(String::as_str).collect::<Vec<_>>(), ["app", CONTROL_LABEL]);
    assert_eq!(steps(within(watch.message()).await.unwrap().unwrap().lifecycle), []);
    let got = operator.get(v1::GetRequest { pod: pod("web") }).await.unwrap().into_inner();
    assert_eq!(steps(got.lifecycle), []);

    fixture.pods().delete("web", &Default::default()).await.unwrap();
    let (code, words) = loop {
        match within(watch.message()).await {
            Ok(message) => assert!(message.is_some()),
            gone => break refusal(gone),
        }
    };
    assert!(code == Code::NotFound && words.contains("no pod shop/web"), "{words}");
    assert_eq!(refusal(operator.begin(begin("web", "a", "update")).await).0, Code::NotFound);
}

pub(crate) async fn a_pod_reports_that_it_is_busy(fixture: &Fixture) {
    let stored = fixture.pod("worker").await;
    let mut operator = fixture.lifecycle("shop", "operator").await;
    let minutes = |minutes: i64| {
        let time = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(minutes);
        Some(prost_types::Timestamp { seconds: time.as_second(), nanos: 0 })
    };
    let busy = |until, reason: &str| v1::BusyRequest { pod: pod("worker"), until, reason: reason.to_owned() };
    let until = minutes(5);
    let marked = operator.busy(busy(until, "encoding 17")).await.unwrap().into_inner().lifecycle.unwrap();
    assert_eq!(marked.busy, Some(v1::Work { until, reason: "encoding 17".to_owned() }));
    assert!(marked.operations.is_empty(), "no operation waits yet");
    let version = fixture.pods().get("worker").await.unwrap().resource_version();
    operator.busy(busy(minutes(1), "encoding 18")).await.unwrap();
    assert_eq!(fixture.pods().get("worker").await.unwrap().resource_version(), version, "nothing is written");

    let begun = operator.begin(begin("worker", "upgrade", "update")).await.unwrap().into_inner();
    let message = begun.lifecycle.unwrap().message;
    assert!(message.contains("busy until") && message.contains("encoding 17"), "{message}");
    let later = operator.busy(busy(minutes(9), "encoding 17")).await.unwrap().into_inner();
    assert_eq!(
        steps(later.lifecycle),
        [("upgrade".to_owned(), v1::Step::Checking)],
        "the response names the operation that waits"
    );

    for ended in [None, minutes(-1)] {
        let idle = operator.busy(busy(ended, "")).await.unwrap().into_inner();
        assert_eq!(idle.lifecycle.unwrap().busy, None);
    }
    let mut annotations = fixture.pods().get("worker").await.unwrap().annotations().clone();
    let history = annotations.remove(HISTORY).unwrap();
    assert!(history.contains(r#""begunBy":"system:serviceaccount:shop:operator""#), "{history}");
    assert_eq!(&annotations, stored.annotations(), "all annotations of the work are removed");

    let (code, words) = refusal(operator.busy(busy(minutes(1), &"x".repeat(257))).await);
    assert!(code == Code::InvalidArgument && words.contains("257 bytes"), "{words}");
    let never = Some(prost_types::Timestamp { seconds: i64::MAX, nanos: 0 });
    assert_eq!(refusal(operator.busy(busy(never, "")).await).0, Code::InvalidArgument);
    let gone = v1::BusyRequest { pod: pod("nobody"), until: minutes(1), reason: String::new() };
    assert_eq!(refusal(operator.busy(gone).await).0, Code::NotFound);
    let mut outsider = fixture.lifecycle("shop", "outsider").await;
    let (code, words) = refusal(outsider.busy(busy(minutes(1), "")).await);
    assert!(code == Code::PermissionDenied && words.contains("update"), "{words}");
    let cancel = v1::CancelRequest { pod: pod("worker"), operation_id: "upgrade".to_owned() };
    operator.cancel(cancel).await.unwrap();
}

pub(crate) async fn rights_are_those_of_the_namespace(fixture: &Fixture) {
    let stored = fixture.pod("rights").await;
    let mut operator = fixture.lifecycle("shop", "operator").await;
    let elsewhere = v1::PodReference { namespace: "bank".to_owned(), ..pod("rights").unwrap() };
    let mut foreign = begin("rights", "a", "update");
    foreign.pod = Some(elsewhere);
    let (code, words) = refusal(operator.begin(foreign).await);
    assert!(
        code == Code::PermissionDenied && words.contains("may not update pods in namespace bank"),
        "{words}"
    );
    let mut author = fixture.lifecycle("shop", "author").await;
    assert_eq!(refusal(author.get(v1::GetRequest { pod: pod("rights") }).await).0, Code::PermissionDenied);
    assert_eq!(
        refusal(author.watch(v1::WatchRequest { pod: pod("rights") }).await).0,
        Code::PermissionDenied
    );

    let of = |namespace: &str, name: &str, uid: &str| {
        Some(v1::PodReference { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.to_owned() })
    };
    for (pod, code) in [
        (None, Code::InvalidArgument),
        (of("", "rights", ""), Code::InvalidArgument),
        (of("../../api", "rights", ""), Code::InvalidArgument),
        (of("shop", "a/b?c", ""), Code::InvalidArgument),
        (of("shop", "rights", "another"), Code::NotFound),
    ] {
        assert_eq!(refusal(operator.get(v1::GetRequest { pod: pod.clone() }).await).0, code, "{pod:?}");
    }
    let exact = v1::GetRequest { pod: of("shop", "rights", &stored.uid().unwrap()) };
    operator.get(exact).await.unwrap();
    for (id, operation_type) in [("", "update"), ("a", ""), ("a/b", "update"), ("a", "b c"), ("-", "update")]
    {
        let (code, _) = refusal(operator.begin(begin("rights", id, operation_type)).await);
        assert_eq!(code, Code::InvalidArgument, "{id} {operation_type}");
    }
    let out = json!({"metadata": {"labels": {CONTROL_LABEL: null}}});
    fixture.pods().patch("rights", &PatchParams::default(), &Patch::Merge(&out)).await.unwrap();
    let (code, words) = refusal(operator.begin(begin("rights", "a", "update")).await);
    assert!(code == Code::FailedPrecondition && words.contains("has not opted in"), "{words}");
}

/// A write that conflicts is decided again.
pub(crate) async fn concurrent_operations_on_one_pod(fixture: &Fixture) {
    fixture.pod("busy").await;
    let operator = fixture.lifecycle("shop", "operator").await;
    let ids: Vec<String> = (0..6).map(|number| format!("id-{number}")).collect();
    join_all(ids.iter().map(|id| {
        let mut operator = operator.clone();
        async move { operator.begin(begin("busy", id, "update")).await.unwrap() }
    }))
    .await;
    let got = operator.clone().get(v1::GetRequest { pod: pod("busy") }).await.unwrap().into_inner();
    let begun: Vec<String> = steps(got.lifecycle).into_iter().map(|(id, _)| id).collect();
    assert_eq!(begun, ids);
}

pub(crate) async fn deletion_requests_name_the_real_user(fixture: &Fixture) {
    let stored = fixture.pod("doomed").await;
    let uid = stored.uid().unwrap();
    let deletion = v1::DeletionRequest {
        kind: v1::DeletionKind::Evict.into(),
        // Ignored.
        requested_by: "kubernetes-admin".to_owned(),
        requested_at: None,
        grace_period_seconds: Some(5),
    };
    let own = v1::RequestDeletionRequest {
        pod: pod("doomed"),
        deletion_request: Some(deletion.clone()),
        requester: None,
    };
    let of = |user: &str, groups: &[&str]| v1::RequestDeletionRequest {
        pod: pod("doomed").map(|pod| v1::PodReference { uid: uid.clone(), ..pod }),
        requester: Some(v1::Requester {
            user: user.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..v1::Requester::default()
        }),
        ..own.clone()
    };
    let mut operator = fixture.lifecycle("shop", "operator").await;
    let (code, words) = refusal(operator.request_deletion(own.clone()).await);
    assert!(
        code == Code::PermissionDenied && words.contains("may not create pods/eviction in namespace shop"),
        "{words}"
    );
    // Only the webhook may name another user.
    let (code, words) = refusal(operator.request_deletion(of("jane", &["system:masters"])).await);
    assert!(code == Code::InvalidArgument && words.contains("--trusted-requester"), "{words}");

    let mut webhook = fixture.lifecycle("podward-system", "validating-webhook").await;
    let (code, words) = refusal(webhook.request_deletion(of("jane", &["system:authenticated"])).await);
    assert!(code == Code::PermissionDenied && words.contains("user jane may not"), "{words}");
    let nameless = v1::RequestDeletionRequest { requester: None, ..own.clone() };
    assert_eq!(refusal(webhook.request_deletion(nameless).await).0, Code::InvalidArgument);
    let without_uid = v1::RequestDeletionRequest { pod: pod("doomed"), ..of("jane", &["system:masters"]) };
    let (code, words) = refusal(webhook.request_deletion(without_uid).await);
    assert!(code == Code::InvalidArgument && words.contains("pod.uid"), "{words}");
    assert!(fixture.recorder.recorded.lock().is_empty());

    let by_jane = of("jane", &["system:masters"]);
    let answer = webhook.request_deletion(by_jane).await.unwrap().into_inner();
    assert_eq!(answer.lifecycle.unwrap().pod.unwrap().uid, uid);
    let mut deleter = fixture.lifecycle("shop", "deleter").await;
    deleter.request_deletion(own.clone()).await.unwrap();
    let recorded = std::mem::take(&mut *fixture.recorder.recorded.lock());
    let names: Vec<_> = recorded.iter().map(|request| request.requested_by.as_str()).collect();
    assert_eq!(names, ["jane", "system:serviceaccount:shop:deleter"]);
    assert_eq!(recorded[0].groups(), ["system:masters", "system:authenticated"]);
    assert_eq!(recorded[1].requester_groups, [""; 0], "the groups of a service account follow from its name");
    assert!(
        recorded.iter().all(|request| {
            request.kind == DeletionKind::Evict && request.grace_period_seconds == Some(5)
        })
    );

    let unspecified = v1::DeletionRequest { kind: 0, ..deletion };
    for deletion_request in [None, Some(unspecified)] {
        let request = v1::RequestDeletionRequest { deletion_request, ..of("jane", &["system:masters"]) };
        assert_eq!(refusal(webhook.request_deletion(request).await).0, Code::InvalidArgument);
    }
}

/// A large workload is counted for longer than the webhook waits.
pub(crate) async fn a_request_is_recorded_when_its_caller_has_gone(fixture: &Fixture) {
    fixture.pod("slow").await;
    let mut deleter = fixture.lifecycle("shop", "deleter").await;
    let deletion_request =
        Some(v1::DeletionRequest { kind: v1::DeletionKind::Delete.into(), ..v1::DeletionRequest::default() });
    let request = v1::RequestDeletionRequest { pod: pod("slow"), deletion_request, requester: None };
    tokio::select! {
        answer = deleter.request_deletion(request) => panic!("{answer:?}"),
        () = within(fixture.recorder.arrived.notified()) => {}
    }
    // On the same connection: when it is answered, the server knows that the first caller has gone.
    let _ = deleter.get(v1::GetRequest { pod: pod("slow") }).await;
    fixture.recorder.may_record.notify_one();
    within(fixture.recorder.stored.notified()).await;
    assert!(fixture.recorder.recorded.lock().pop().is_some());
}

pub(crate) async fn a_revoked_right_ends_a_watch(fixture: &Fixture) {
    fixture.pod("watched").await;
    let bound = fixture.bind_in_shop("ClusterRole", "operator", "leaver").await;
    let mut leaver = fixture.lifecycle("shop", "leaver").await;
    let request = v1::WatchRequest { pod: pod("watched") };
    let mut watch = loop {
        // The API server needs some time to know the binding.
        match within(leaver.watch(request.clone())).await {
            Ok(watch) => break watch.into_inner(),
            Err(refused) => assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}"),
        }
    };
    within(watch.message()).await.unwrap().unwrap();
    fixture.unbind(&bound).await;
    let (code, words) = loop {
        match within(watch.message()).await {
            Ok(changed) => assert!(changed.is_some()),
            ended => break refusal(ended),
        }
    };
    assert_eq!(code, Code::PermissionDenied);
    assert!(words.contains("was revoked") && words.contains("may not get pods"), "{words}");
}
