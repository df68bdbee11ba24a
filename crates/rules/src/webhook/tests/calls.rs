//! Calls to servers that answer, fail, are slow, or send invalid answers.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::Response;
use hyper::body::{Bytes, Frame};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::super::WebhookVerdict;
use super::super::client::WebhookEndpoint;
use super::super::drivers::WebhookConsultation;
use super::fixture::{TEST_TIMEOUT, WebhookFixture, local_dialer, rule};
use super::waiting;
use super::webhook_server::{ReceivedCall, WebhookAnswer, WebhookServer, json as answer, text};

/// Returns the reason of the failure of a call.
async fn refusal(server: &WebhookServer, change: Value) -> String {
    let fixture = WebhookFixture::new();
    let has_failed = |found: &WebhookConsultation| match &found.verdicts[0] {
        WebhookVerdict::Waiting(reason) => reason.text.starts_with("Fail to do"),
        _ => false,
    };
    match fixture.until(&rule(server, change), &waiting(&["a"]), has_failed).await.verdicts.remove(0) {
        WebhookVerdict::Waiting(reason) => reason.text,
        other => unreachable!("{other:?}"),
    }
}

#[tokio::test]
async fn a_batch_is_sent_with_parameters_over_tls_of_a_private_authority() {
    let server = WebhookServer::start(true, |_, _| async { answer(json!({"success": true})) }).await;
    let parameters = json!({"parameters": [
        {"key": "podIP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}, {"key": "plain", "value": "x"},
    ]});
    let fixture = WebhookFixture::new();
    fixture.passed(&rule(&server, parameters), &waiting(&["a", "gone"])).await;
    let received = server.received().remove(0);
    assert_eq!((received.method.as_str(), received.target.as_str()), ("POST", "/first"));
    assert!(received.body["traceId"].is_string());
    let mut body = received.body;
    body.as_object_mut().unwrap().remove("traceId");
    assert_eq!(
        body,
        json!({"ruleName": "outside", "stage": "PreCheck", "resources": [
            {"apiVersion": "core/v1", "kind": "Pod", "name": "a", "parameters": {"podIP": "10.0.0.1", "plain": "x"}},
            {"apiVersion": "core/v1", "kind": "Pod", "name": "gone", "parameters": {"podIP": "", "plain": "x"}},
        ]})
    );
    fixture.stop.cancel();
    fixture.webhooks.stopped().await;
}

#[tokio::test]
async fn requests_have_a_limit_and_a_pod_that_fits_into_none_waits() {
    let server = WebhookServer::start(false, |_, _| async { answer(json!({"success": true})) }).await;
    let parameters =
        json!([{"key": "data", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations"}}}]);
    let rule = rule(&server, json!({"tls": false, "parameters": parameters}));
    let pods = waiting(&["a", "huge", "large-0", "large-1", "large-2", "large-3", "large-4", "large-5", "b"]);
    let fixture = WebhookFixture::new();
    let has_passed = |verdict: &&WebhookVerdict| **verdict == WebhookVerdict::Passed;
    let found =
        fixture.until(&rule, &pods, |found| found.verdicts.iter().filter(has_passed).count() == 8).await;
    match &found.verdicts[1] {
        WebhookVerdict::Waiting(reason) => assert!(
            reason.text.contains("the parameters of pod huge have more than 1048576 bytes"),
            "{reason:?}"
        ),
        other => unreachable!("{other:?}"),
    }
    let received = server.received();
    let sent = |call: &ReceivedCall| {
        let resources = call.body["resources"].as_array().unwrap().clone();
        assert!(call.body.to_string().len() <= 1 << 20);
        resources.iter().map(|pod| pod["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let sent: Vec<String> = received.iter().flat_map(sent).collect();
    assert_eq!(sent, ["a", "large-0", "large-1", "large-2", "large-3", "large-4", "large-5", "b"]);
    assert_eq!(received.len(), 2);
}

/// Answers with a task that approves `a`, and the other pods once `may_finish` is true.
fn polling(
    may_finish: &Arc<AtomicBool>,
) -> impl Fn(usize, ReceivedCall) -> BoxFuture<'static, WebhookAnswer> + Clone + Send + Sync + use<> {
    let may_finish = may_finish.clone();
    move |_, received| {
        let finished = may_finish.load(Ordering::SeqCst);
        async move {
            match received.method.as_str() {
                "POST" => answer(json!({"success": true, "async": true, "traceId": "t/1"})),
                _ if finished => answer(json!({"success": true, "finished": true})),
                _ => answer(json!({"success": false, "finishedNames": ["a"], "message": "on it"})),
            }
        }
        .boxed()
    }
}

#[tokio::test]
async fn a_task_is_polled_and_approves_pods_one_by_one() {
    let may_finish = Arc::new(AtomicBool::new(false));
    let server = WebhookServer::start(true, polling(&may_finish)).await;
    let (fixture, rule, waiting) = (WebhookFixture::new(), rule(&server, json!({})), waiting(&["a", "b"]));
    let half = fixture.until(&rule, &waiting, |found| found.verdicts[0] == WebhookVerdict::Passed).await;
    assert!(matches!(&half.verdicts[1], WebhookVerdict::Waiting(reason) if reason.text.ends_with("on it")));
    assert_eq!(half.status.task_states[0].approved, ["a"]);
    may_finish.store(true, Ordering::SeqCst);
    let end = fixture.passed(&rule, &waiting).await;
    assert_eq!((end.status.task_states.len(), end.status.history[0].task_id.as_str()), (0, "t/1"));
    let polls: Vec<_> =
        server.received().into_iter().skip(1).map(|received| (received.method, received.target)).collect();
    assert!(
        polls.iter().all(|poll| *poll == ("GET".to_owned(), "/poll?kind=a&task-id=t%2F1".to_owned())),
        "{polls:?}"
    );
}

#[tokio::test]
async fn another_process_continues_a_task() {
    let may_finish = Arc::new(AtomicBool::new(false));
    let server = WebhookServer::start(true, polling(&may_finish)).await;
    let (rule, waiting) = (rule(&server, json!({})), waiting(&["a", "b"]));
    let before = WebhookFixture::new();
    let stored = before.until(&rule, &waiting, |found| !found.status.task_states.is_empty()).await.status;
    before.stop.cancel();
    before.webhooks.stopped().await;
    may_finish.store(true, Ordering::SeqCst);
    let after = WebhookFixture::new();
    after.consult("outside", &rule, &waiting, Some(&stored));
    after.passed(&rule, &waiting).await;
    let posts = server.received().iter().filter(|received| received.method == "POST").count();
    assert_eq!(posts, 1, "{:?}", server.received());
}

#[tokio::test]
async fn tasks_of_two_rules_with_the_same_id_are_separate() {
    // One id for two tasks: one approves `a`, the other nothing.
    let server = WebhookServer::start(false, |_, received| async move {
        match received.target.split('?').next().unwrap_or_default() {
            "/first" => answer(json!({"success": true, "poll": true, "taskId": "same"})),
            "/poll" => answer(json!({"success": true, "finished": true})),
            _ => answer(json!({"success": true, "message": "not yet"})),
        }
    })
    .await;
    let fixture = WebhookFixture::new();
    let (one, waiting) = (rule(&server, json!({"tls": false})), waiting(&["a"]));
    let other = rule(
        &server,
        json!({"tls": false, "clientConfig": {"poll": {"url": format!("http://{}/other", server.address)}}}),
    );
    let consult_other = || fixture.consult("other", &other, &waiting, None);
    consult_other();
    fixture.passed(&one, &waiting).await;
    let other_reason = tokio::time::timeout(TEST_TIMEOUT, async {
        loop {
            match consult_other().verdicts.remove(0) {
                WebhookVerdict::Waiting(reason) if reason.text.ends_with("not yet") => return reason.text,
                WebhookVerdict::Waiting(_) | WebhookVerdict::NotAnswered => fixture.changed.notified().await,
                passed => unreachable!("{passed:?}"),
            }
        }
    });
    assert!(other_reason.await.unwrap().contains("shop/rules/other, polling task same is running"));
}

#[tokio::test]
async fn a_failed_call_is_retried() {
    let server = WebhookServer::start(true, |before, _| async move {
        if before == 0 { text(500, "out of order") } else { answer(json!({"success": true})) }
    })
    .await;
    let (fixture, rule, waiting) = (WebhookFixture::new(), rule(&server, json!({})), waiting(&["a"]));
    fixture.passed(&rule, &waiting).await;
    assert_eq!(server.received().len(), 2);
}

#[tokio::test]
async fn ignored_failures_are_in_the_verdict() {
    let server = WebhookServer::start(true, |_, _| async { text(200, "<html>") }).await;
    let rule = rule(&server, json!({"failurePolicy": "Ignore"}));
    let fixture = WebhookFixture::new();
    let found = fixture
        .until(&rule, &waiting(&["a"]), |found| matches!(found.verdicts[0], WebhookVerdict::Ignored(_)))
        .await;
    assert!(format!("{found:?}").contains("can't be understood"), "{found:?}");
}

#[tokio::test]
async fn invalid_answers_are_failures() {
    let invalid = |body: fn() -> WebhookAnswer| WebhookServer::start(true, move |_, _| async move { body() });
    let endless = || {
        let chunks =
            stream::repeat_with(|| Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b' '; 65_536]))));
        Response::new(BodyExt::boxed(StreamBody::new(chunks)))
    };
    let redirect = || {
        let mut answer = text(302, "");
        answer.headers_mut().insert("location", "http://127.0.0.1:1/".parse().unwrap());
        answer
    };
    for (server, words) in [
        (invalid(|| text(200, "{\"success\": 1}")).await, "success is not true or false"),
        (invalid(endless).await, "larger than 1048576 bytes"),
        (invalid(redirect).await, "redirects are not followed"),
        (invalid(|| text(404, "nothing here")).await, "it answered 404 Not Found (no media type, 12 bytes)"),
    ] {
        let reason = refusal(&server, json!({})).await;
        assert!(reason.contains(words), "{reason}");
        assert_eq!(server.received()[0].method, "POST");
    }
}

#[tokio::test]
async fn a_server_of_another_authority_is_not_trusted() {
    let server = WebhookServer::start(true, |_, _| async { answer(json!({"success": true})) }).await;
    let other = WebhookServer::start(true, |_, _| async { answer(json!({"success": true})) }).await;
    for bundle in [BASE64_STANDARD.encode(&other.authority), "invalid".to_owned()] {
        let reason = refusal(&server, json!({"clientConfig": {"caBundle": bundle}})).await;
        assert!(reason.contains("could not connect to") || reason.contains("base64"), "{reason}");
    }
    // Nor is a server without TLS.
    let plain = WebhookServer::start(false, |_, _| async { answer(json!({"success": true})) }).await;
    refusal(&plain, json!({})).await;
    assert!(server.received().is_empty() && plain.received().is_empty());
}

#[tokio::test]
async fn a_self_signed_certificate_must_be_in_the_bundle() {
    let server = WebhookServer::start_self_signed(|_, _| async { answer(json!({"success": true})) }).await;
    WebhookFixture::new().passed(&rule(&server, json!({})), &waiting(&["a"])).await;
    let calls = server.received().len();
    let other = WebhookServer::start_self_signed(|_, _| async { answer(json!({"success": true})) }).await;
    let bundle = BASE64_STANDARD.encode(&other.authority);
    refusal(&server, json!({"clientConfig": {"caBundle": bundle}})).await;
    assert_eq!(server.received().len(), calls);
}

#[tokio::test]
async fn an_unreachable_server_is_reported() {
    let server = WebhookServer::start(false, |_, _| async { answer(json!({})) }).await;
    let rule = json!({"clientConfig": {"url": format!("http://{}/first", server.address)}});
    let address = server.address;
    drop(server);
    let mut gone = WebhookServer::start(false, |_, _| async { answer(json!({})) }).await;
    gone.address = address;
    let reason = refusal(&gone, rule).await;
    assert!(reason.contains(&address.to_string()), "{reason}");
}

#[tokio::test]
async fn a_slow_call_times_out() {
    let server = WebhookServer::start(false, |_, _| std::future::pending()).await;
    let limit = Duration::from_millis(100);
    let endpoint =
        WebhookEndpoint::new(&format!("http://{}/x", server.address), "", limit, &local_dialer()).unwrap();
    let failure = endpoint.post(b"{}".to_vec(), None).await.unwrap_err();
    assert!(failure.reason_to_log().contains("no complete answer within 100ms"), "{failure:?}");
}

#[tokio::test]
async fn a_server_gets_few_calls_at_a_time() {
    let (busy, most) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    let server = {
        let (busy, most) = (busy.clone(), most.clone());
        WebhookServer::start(false, move |_, _| {
            let (busy, most) = (busy.clone(), most.clone());
            async move {
                {
                    let mut busy = busy.lock();
                    *busy += 1;
                    let mut most = most.lock();
                    *most = (*most).max(*busy);
                }
                tokio::task::yield_now().await;
                *busy.lock() -= 1;
                answer(json!({"success": true}))
            }
        })
        .await
    };
    let fixture = WebhookFixture::new();
    let (rule, waiting) = (rule(&server, json!({"tls": false})), waiting(&["a"]));
    let names: Vec<String> = (0..40).map(|index| format!("rule-{index}")).collect();
    let all = tokio::time::timeout(TEST_TIMEOUT, async {
        while !names
            .iter()
            .all(|name| fixture.consult(name, &rule, &waiting, None).verdicts[0] == WebhookVerdict::Passed)
        {
            fixture.changed.notified().await;
        }
    });
    all.await.unwrap();
    assert!(*most.lock() <= 8, "{}", most.lock());
    assert_eq!(server.received().len(), 40);
}

#[tokio::test]
async fn the_calls_of_a_removed_rule_are_cancelled() {
    let cancelled = Arc::new(Notify::new());
    let server = {
        let cancelled = cancelled.clone();
        WebhookServer::start(false, move |_, _| {
            let guard = OnDrop(cancelled.clone());
            async move {
                let _guard = guard;
                std::future::pending().await
            }
        })
        .await
    };
    let fixture = WebhookFixture::new();
    let rule = rule(&server, json!({"tls": false}));
    fixture.consult("outside", &rule, &waiting(&["a"]), None);
    let begun = stream::repeat(()).then(|()| async {
        tokio::task::yield_now().await;
        !server.received().is_empty()
    });
    tokio::time::timeout(TEST_TIMEOUT, begun.filter(|is_it| std::future::ready(*is_it)).boxed().next())
        .await
        .unwrap();
    fixture.webhooks.retain("shop", "rules", |id| id.rule != "outside");
    tokio::time::timeout(TEST_TIMEOUT, cancelled.notified()).await.unwrap();
}

struct OnDrop(Arc<Notify>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}
