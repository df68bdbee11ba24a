//! Calls to servers that answer, fail, dawdle and talk rubbish.

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

use super::super::client::Endpoint;
use super::super::{Consulted, Verdict};
use super::scene::{PATIENCE, Scene, rule};
use super::server::{Answer, Asked, Server, json as answer, text};
use super::subjects;

async fn refusal(server: &Server, change: Value) -> String {
    let scene = Scene::new();
    let is_told = |found: &Consulted| matches!(&found.verdicts[0], Verdict::Waiting(reason) if reason.starts_with("Fail to do"));
    match scene.until(&rule(server, change), &subjects(&["a"]), is_told).await.verdicts.remove(0) {
        Verdict::Waiting(reason) => reason,
        other => unreachable!("{other:?}"),
    }
}

#[tokio::test]
async fn a_batch_is_sent_with_parameters_over_tls_of_a_private_authority() {
    let server = Server::start(true, |_, _| async { answer(json!({"success": true})) }).await;
    let parameters = json!({"parameters": [
        {"key": "podIP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}, {"key": "plain", "value": "x"},
    ]});
    let scene = Scene::new();
    scene.passed(&rule(&server, parameters), &subjects(&["a", "gone"])).await;
    let asked = server.asked().remove(0);
    assert_eq!((asked.method.as_str(), asked.target.as_str()), ("POST", "/first"));
    assert!(asked.body["traceId"].is_string());
    let mut body = asked.body;
    body.as_object_mut().unwrap().remove("traceId");
    assert_eq!(
        body,
        json!({"ruleName": "outside", "stage": "PreCheck", "resources": [
            {"apiVersion": "core/v1", "kind": "Pod", "name": "a", "parameters": {"podIP": "10.0.0.1", "plain": "x"}},
            {"apiVersion": "core/v1", "kind": "Pod", "name": "gone", "parameters": {"podIP": "", "plain": "x"}},
        ]})
    );
    scene.stop.cancel();
    scene.webhooks.stopped().await;
}

/// Answers with a task that approves `a`, and the others once it may.
fn polling(
    may_finish: &Arc<AtomicBool>,
) -> impl Fn(usize, Asked) -> BoxFuture<'static, Answer> + Clone + Send + Sync + use<> {
    let may_finish = may_finish.clone();
    move |_, asked| {
        let finished = may_finish.load(Ordering::SeqCst);
        async move {
            match asked.method.as_str() {
                "POST" => answer(json!({"success": true, "async": true, "traceId": "t/1"})),
                _ if finished => answer(json!({"success": true, "finished": true})),
                _ => answer(json!({"finishedNames": ["a"], "message": "on it"})),
            }
        }
        .boxed()
    }
}

#[tokio::test]
async fn a_task_is_asked_for_and_approves_one_by_one() {
    let may_finish = Arc::new(AtomicBool::new(false));
    let server = Server::start(true, polling(&may_finish)).await;
    let (scene, rule, waiting) = (Scene::new(), rule(&server, json!({})), subjects(&["a", "b"]));
    let half = scene.until(&rule, &waiting, |found| found.verdicts[0] == Verdict::Passed).await;
    assert!(matches!(&half.verdicts[1], Verdict::Waiting(reason) if reason.ends_with("on it")));
    assert_eq!(half.status.task_states[0].approved, ["a"]);
    may_finish.store(true, Ordering::SeqCst);
    let end = scene.passed(&rule, &waiting).await;
    assert_eq!((end.status.task_states.len(), end.status.history[0].task_id.as_str()), (0, "t/1"));
    let polls: Vec<_> =
        server.asked().into_iter().skip(1).map(|asked| (asked.method, asked.target)).collect();
    assert!(
        polls.iter().all(|poll| *poll == ("GET".to_owned(), "/poll?kind=a&task-id=t%2F1".to_owned())),
        "{polls:?}"
    );
}

#[tokio::test]
async fn another_process_goes_on_with_a_task() {
    let may_finish = Arc::new(AtomicBool::new(false));
    let server = Server::start(true, polling(&may_finish)).await;
    let (rule, waiting) = (rule(&server, json!({})), subjects(&["a", "b"]));
    let before = Scene::new();
    let stored = before.until(&rule, &waiting, |found| !found.status.task_states.is_empty()).await.status;
    before.stop.cancel();
    before.webhooks.stopped().await;
    may_finish.store(true, Ordering::SeqCst);
    let after = Scene::new();
    after.consult("outside", &rule, &waiting, Some(&stored));
    after.passed(&rule, &waiting).await;
    let posts = server.asked().iter().filter(|asked| asked.method == "POST").count();
    assert_eq!(posts, 1, "{:?}", server.asked());
}

#[tokio::test]
async fn rules_with_tasks_of_the_same_id_don_t_mix() {
    // Approves `a` for one rule and nobody for the other, under one id.
    let server = Server::start(false, |_, asked| async move {
        match asked.target.split('?').next().unwrap_or_default() {
            "/first" => answer(json!({"success": true, "poll": true, "taskId": "same"})),
            "/poll" => answer(json!({"success": true, "finished": true})),
            _ => answer(json!({"success": true, "message": "not yet"})),
        }
    })
    .await;
    let scene = Scene::new();
    let (one, waiting) = (rule(&server, json!({"tls": false})), subjects(&["a"]));
    let other = rule(
        &server,
        json!({"tls": false, "clientConfig": {"poll": {"url": format!("http://{}/other", server.address)}}}),
    );
    let ask_other = || scene.consult("other", &other, &waiting, None);
    ask_other();
    scene.passed(&one, &waiting).await;
    let told = tokio::time::timeout(PATIENCE, async {
        loop {
            match ask_other().verdicts.remove(0) {
                Verdict::Waiting(reason) if reason.ends_with("not yet") => return reason,
                Verdict::Waiting(_) => scene.woken.notified().await,
                passed => unreachable!("{passed:?}"),
            }
        }
    });
    assert!(told.await.unwrap().contains("shop/rules/other, polling task same is running"));
}

#[tokio::test]
async fn what_fails_is_tried_again() {
    let server = Server::start(true, |before, _| async move {
        if before == 0 { text(500, "out of order") } else { answer(json!({"success": true})) }
    })
    .await;
    let (scene, rule, waiting) = (Scene::new(), rule(&server, json!({})), subjects(&["a"]));
    scene.passed(&rule, &waiting).await;
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn failures_that_are_ignored_are_on_record() {
    let server = Server::start(true, |_, _| async { text(200, "<html>") }).await;
    let rule = rule(&server, json!({"failurePolicy": "Ignore"}));
    let scene = Scene::new();
    let found =
        scene.until(&rule, &subjects(&["a"]), |found| matches!(found.verdicts[0], Verdict::Ignored(_))).await;
    assert!(format!("{found:?}").contains("can't be understood"), "{found:?}");
}

#[tokio::test]
async fn rubbish_is_refused() {
    let rubbish = |body: fn() -> Answer| Server::start(true, move |_, _| async move { body() });
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
        (rubbish(|| text(200, "{\"success\": 1}")).await, "success is not true or false"),
        (rubbish(endless).await, "larger than 1048576 bytes"),
        (rubbish(redirect).await, "redirects are not followed"),
        (rubbish(|| text(404, "nothing here")).await, "404 Not Found: \"nothing here\""),
    ] {
        let reason = refusal(&server, json!({})).await;
        assert!(reason.contains(words), "{reason}");
        assert_eq!(server.asked()[0].method, "POST");
    }
}

#[tokio::test]
async fn a_server_of_another_authority_is_not_believed() {
    let server = Server::start(true, |_, _| async { answer(json!({"success": true})) }).await;
    let other = Server::start(true, |_, _| async { answer(json!({"success": true})) }).await;
    for bundle in [BASE64_STANDARD.encode(&other.authority), "rubbish".to_owned()] {
        let reason = refusal(&server, json!({"clientConfig": {"caBundle": bundle}})).await;
        assert!(reason.contains("certificate") || reason.contains("base64"), "{reason}");
    }
    // Nor one that speaks no TLS.
    let plain = Server::start(false, |_, _| async { answer(json!({"success": true})) }).await;
    refusal(&plain, json!({})).await;
    assert!(server.asked().is_empty() && plain.asked().is_empty());
}

#[tokio::test]
async fn one_that_is_away_is_told() {
    let server = Server::start(false, |_, _| async { answer(json!({})) }).await;
    let rule = json!({"clientConfig": {"url": format!("http://{}/first", server.address)}});
    let address = server.address;
    drop(server);
    let mut gone = Server::start(false, |_, _| async { answer(json!({})) }).await;
    gone.address = address;
    let reason = refusal(&gone, rule).await;
    assert!(reason.contains(&address.to_string()), "{reason}");
}

#[tokio::test]
async fn one_that_dawdles_is_given_up() {
    let server = Server::start(false, |_, _| std::future::pending()).await;
    let limit = Duration::from_millis(100);
    let endpoint = Endpoint::new(&format!("http://{}/x", server.address), "", limit).unwrap();
    let failure = endpoint.post(b"{}".to_vec(), None).await.unwrap_err();
    assert!(failure.text().contains("no answer within 100ms"), "{failure:?}");
}

#[tokio::test]
async fn a_server_is_asked_by_few_at_a_time() {
    let (busy, most) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    let server = {
        let (busy, most) = (busy.clone(), most.clone());
        Server::start(false, move |_, _| {
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
    let scene = Scene::new();
    let (rule, waiting) = (rule(&server, json!({"tls": false})), subjects(&["a"]));
    let names: Vec<String> = (0..40).map(|index| format!("rule-{index}")).collect();
    let all = tokio::time::timeout(PATIENCE, async {
        while !names
            .iter()
            .all(|name| scene.consult(name, &rule, &waiting, None).verdicts[0] == Verdict::Passed)
        {
            scene.woken.notified().await;
        }
    });
    all.await.unwrap();
    assert!(*most.lock() <= 8, "{}", most.lock());
    assert_eq!(server.asked().len(), 40);
}

#[tokio::test]
async fn what_is_gone_is_not_asked_for() {
    let cancelled = Arc::new(Notify::new());
    let server = {
        let cancelled = cancelled.clone();
        Server::start(false, move |_, _| {
            let guard = OnDrop(cancelled.clone());
            async move {
                let _guard = guard;
                std::future::pending().await
            }
        })
        .await
    };
    let scene = Scene::new();
    let rule = rule(&server, json!({"tls": false}));
    scene.consult("outside", &rule, &subjects(&["a"]), None);
    let begun = stream::repeat(()).then(|()| async {
        tokio::task::yield_now().await;
        !server.asked().is_empty()
    });
    tokio::time::timeout(PATIENCE, begun.filter(|is_it| std::future::ready(*is_it)).boxed().next())
        .await
        .unwrap();
    scene.webhooks.keep("shop", "rules", |id| id.rule != "outside");
    tokio::time::timeout(PATIENCE, cancelled.notified()).await.unwrap();
}

struct OnDrop(Arc<Notify>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}
