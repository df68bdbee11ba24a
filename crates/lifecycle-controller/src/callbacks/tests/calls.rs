//! Hook servers that work.

use std::fs;
use std::sync::Arc;

use podward_core::hooks::Answer;
use podward_proto::v1;
use serde_json::json;
use tokio::sync::mpsc;
use tonic::Request;

use super::hook_server::{HookServer, Identities, Options, done, pending};
use super::{ApiServer, HookArgs, PATIENCE, Rig, hook, pod, question};

#[tokio::test]
async fn a_hook_is_asked_until_it_is_done() {
    let (asked, mut requests) = mpsc::unbounded_channel();
    let server = HookServer::start(move |request: Request<v1::HandleRequest>| {
        let request = request.into_inner();
        let answer = match request.attempt {
            1 => pending("3 sessions"),
            2 => v1::HandleResponse { outcome: v1::Outcome::Rejected.into(), ..pending("no") },
            _ => done("no sessions"),
        };
        asked.send(request).unwrap();
        async { Ok(answer) }
    })
    .await;
    let mut rig = Rig::with(&[server.hook("lb", json!({}))], &[]).await;
    let (web, question) = (pod("web-0"), question("lb"));
    assert_eq!(rig.answer(&web, &question), None, "not asked");
    assert_eq!(rig.ask_until_told(&web, &question).await, "3 sessions");
    rig.until(|rig| rig.answer(&web, &question) == Some(Answer::Rejected { reason: "no".to_owned() })).await;
    assert_eq!(rig.ask_until_done(&web, &question).await, "no sessions");
    let first: v1::HandleRequest = requests.recv().await.unwrap();
    let second = requests.recv().await.unwrap();
    assert_eq!((first.attempt, second.attempt), (1, 2));
    assert_eq!(first.question_id, second.question_id);
    assert_eq!(first.phase(), v1::Phase::Prepare);
    let about = first.pod.unwrap();
    assert_eq!((about.name.as_str(), about.ips.as_slice()), ("web-0", ["10.0.0.7".to_owned()].as_slice()));
    // Attempts may be short when pods are many; the server is reached by name, too.
    let status = rig.api.status("lb", |status| status["latencyP50Milliseconds"].is_u64()).await;
    assert!(status["lastAnswerTime"].is_string(), "{status}");
}

#[tokio::test]
async fn a_server_is_known_by_the_name_it_is_to_have() {
    let server = HookServer::start(|_| async { Ok(done("")) }).await;
    let mut hook = server.hook("lb", json!({}));
    hook["spec"]["endpoint"]["url"] = json!(format!("https://localhost:{}", server.address.port()));
    let mut rig = Rig::with(&[hook.clone()], &[]).await;
    rig.ask_until_done(&pod("a"), &question("lb")).await;
    hook["spec"]["endpoint"]["serverName"] = json!("another.example");
    rig.api.put_hook(hook);
    let status = rig.api.status("lb", |status| status["conditions"][1]["status"] == "False").await;
    let message = status["conditions"][1]["message"].as_str().unwrap();
    assert!(message.contains("certificate") && message.contains("serverName"), "{message}");
}

#[tokio::test]
async fn podward_proves_itself_by_token_and_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let client = Identities::new();
    fs::write(path("token"), "secret-1").unwrap();
    fs::write(path("cert"), &client.certificate).unwrap();
    fs::write(path("key"), &client.key).unwrap();
    let options = Options { client_ca: Some(client.certificate), ..Options::default() };
    let server = HookServer::start_with(options, |request: Request<v1::HandleRequest>| async move {
        let certificates = request.peer_certs().map_or(0, |certificates| certificates.len());
        let token = request.metadata().get("authorization").unwrap().to_str().unwrap().to_owned();
        let timeout = request.metadata().contains_key("grpc-timeout");
        Ok(done(&format!("{token} {certificates} {timeout}")))
    })
    .await;
    let api = ApiServer::new();
    api.put_namespace("shop", json!({}));
    api.put_hook(server.hook("lb", json!({})));
    let args = HookArgs {
        hook_token_file: Some(path("token")),
        hook_client_cert: Some(path("cert")),
        hook_client_key: Some(path("key")),
    };
    let mut rig = Rig::start(api, args, &[]);
    assert_eq!(rig.ask_until_done(&pod("a"), &question("lb")).await, "Bearer secret-1 1 true");
}

#[tokio::test]
async fn a_thousand_pods_that_wait_for_a_dead_hook_do_not_delay_another() {
    let fast = HookServer::start(|_| async { Ok(done("")) }).await;
    // It takes connections, and drops them at once.
    let dead = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", dead.local_addr().unwrap());
    let connections = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = connections.clone();
    tokio::spawn(async move {
        while dead.accept().await.is_ok() {
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    });
    let identity = Identities::new();
    let endpoint = json!({"url": url, "caCertificates": identity.certificate});
    let hooks = [hook("dead", json!({"endpoint": endpoint})), fast.hook("fast", json!({}))];
    let mut rig = Rig::with(&hooks, &[]).await;
    let pods: Vec<_> = (0..1000).map(|index| pod(&format!("web-{index}"))).collect();
    for pod in &pods {
        rig.callbacks.ask(pod, &[question("dead"), question("fast")]);
    }
    let is_done = |rig: &Rig, pod| matches!(rig.answer(pod, &question("fast")), Some(Answer::Done(_)));
    rig.until(|rig| pods.iter().all(|pod| is_done(rig, pod))).await;
    rig.until(|rig| super::told(rig.answer(&pods[999], &question("dead"))).is_some()).await;
    assert_eq!(*fast.calls.borrow(), 1000, "each was asked once");
    // As many as may be in flight before it is known to be dead, and some probes.
    let tried = connections.load(std::sync::atomic::Ordering::SeqCst);
    assert!(tried <= 64 + 20, "{tried} connections");
}

#[tokio::test]
async fn a_cancelled_question_is_cancelled_at_the_hook() {
    let server = HookServer::start(|_| std::future::pending()).await;
    let rig = Rig::with(&[server.hook("lb", json!({}))], &[]).await;
    let (mut calls, mut ended) = (server.calls.clone(), server.ended.clone());
    for (round, end) in [true, false].into_iter().enumerate() {
        rig.callbacks.ask(&pod("a"), &[question("lb")]);
        let reached = tokio::time::timeout(PATIENCE, calls.wait_for(|calls| *calls == round + 1));
        reached.await.unwrap().unwrap();
        if end {
            rig.callbacks.ask(&pod("a"), &[]);
        } else {
            rig.callbacks.forget(pod("a").uid());
        }
        let over = tokio::time::timeout(PATIENCE, ended.wait_for(|ended| *ended == round + 1));
        over.await.unwrap().unwrap();
    }
}
