//! Hook servers that work.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use podward_core::hooks::HookAnswer;
use podward_proto::v1;
use serde_json::json;
use tokio::sync::mpsc;
use tonic::Request;

use super::hook_server::{HookServer, ServerOptions, TestIdentity, done, pending};
use super::{ApiServer, Fixture, HookArgs, HookProbe, TEST_TIMEOUT, dialer, hook, pod, question};

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
    let mut fixture = Fixture::with(&[server.hook("lb", json!({}))], &[]).await;
    let (web, question) = (pod("web-0"), question("lb"));
    assert_eq!(fixture.answer(&web, &question), None, "not asked");
    assert_eq!(fixture.ask_until_reported(&web, &question).await, "3 sessions");
    fixture
        .until(|fixture| {
            fixture.answer(&web, &question) == Some(HookAnswer::Rejected { reason: "no".to_owned() })
        })
        .await;
    assert_eq!(fixture.ask_until_done(&web, &question).await, "no sessions");
    let first: v1::HandleRequest = requests.recv().await.unwrap();
    let second = requests.recv().await.unwrap();
    assert_eq!((first.attempt, second.attempt), (1, 2));
    assert_eq!(first.question_id, second.question_id);
    assert_eq!(first.phase(), v1::Phase::Prepare);
    let about = first.pod.unwrap();
    assert_eq!((about.name.as_str(), about.ips.as_slice()), ("web-0", ["10.0.0.7".to_owned()].as_slice()));
    // Attempts may be short when pods are many; the server is reached by name, too.
    let status = fixture.api.status("lb", |status| status["latencyP50Milliseconds"].is_u64()).await;
    assert!(status["lastAnswerTime"].is_string(), "{status}");
}

#[tokio::test]
async fn a_server_is_verified_by_its_configured_name() {
    let server = HookServer::start(|_| async { Ok(done("")) }).await;
    let mut hook = server.hook("lb", json!({}));
    hook["spec"]["endpoint"]["url"] = json!(format!("https://localhost:{}", server.address.port()));
    let mut fixture = Fixture::with(&[hook.clone()], &[]).await;
    fixture.ask_until_done(&pod("a"), &question("lb")).await;
    hook["spec"]["endpoint"]["serverName"] = json!("another.example");
    fixture.api.put_hook(hook);
    let status = fixture.api.status("lb", |status| status["conditions"][1]["status"] == "False").await;
    let message = status["conditions"][1]["message"].as_str().unwrap();
    assert!(message.contains("certificate") && message.contains("serverName"), "{message}");
}

#[tokio::test]
async fn podward_proves_itself_by_token_and_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let client = TestIdentity::new();
    fs::write(path("cert"), &client.certificate).unwrap();
    fs::write(path("key"), &client.key).unwrap();
    let options = ServerOptions { client_ca: Some(client.certificate), ..ServerOptions::default() };
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
        hook_token_account: Some("podward-system/lifecycle-controller".parse().unwrap()),
        hook_client_cert: Some(path("cert")),
        hook_client_key: Some(path("key")),
    };
    let mut fixture = Fixture::start(api, args, &[]);
    for name in ["a", "b", "c"] {
        let done = fixture.ask_until_done(&pod(name), &question("lb")).await;
        assert_eq!(
            done, "Bearer lifecycle-controller-podward.io/hooks/lb-1 1 true",
            "one token for all calls"
        );
    }
}

/// The attack: a hook server uses the token that it receives at another hook.
#[tokio::test]
async fn every_hook_receives_a_token_of_its_own_audience() {
    let token = |request: &Request<v1::HandleRequest>| {
        request.metadata().get("authorization").unwrap().to_str().unwrap().to_owned()
    };
    let (mallory, bank) =
        (HookServer::start(move |request| async move { Ok(done(&token(&request))) }).await, {
            HookServer::start(move |request| async move { Ok(done(&token(&request))) }).await
        });
    let api = ApiServer::new();
    api.put_namespace("shop", json!({}));
    api.put_hook(mallory.hook("mallory", json!({})));
    api.put_hook(bank.hook("bank", json!({})));
    let account = Some("podward-system/lifecycle-controller".parse().unwrap());
    let args = HookArgs { hook_token_account: account, ..HookArgs::default() };
    let mut fixture = Fixture::start(api.clone(), args, &[]);
    for hook in ["mallory", "bank"] {
        let sent = fixture.ask_until_done(&pod("a"), &question(hook)).await;
        let audience = format!("Bearer lifecycle-controller-podward.io/hooks/{hook}-");
        assert!(sent.starts_with(&audience), "{sent}");
    }
    assert_eq!(api.tokens.load(Ordering::SeqCst), 2, "one request for each hook");
}

#[tokio::test]
async fn without_a_token_the_hook_is_not_called_and_the_reason_is_reported() {
    let server = HookServer::start(|_| async { Ok(done("")) }).await;
    let api = ApiServer::new();
    api.issues_tokens.store(false, Ordering::SeqCst);
    api.put_namespace("shop", json!({}));
    api.put_hook(server.hook("lb", json!({})));
    let account = Some("podward-system/lifecycle-controller".parse().unwrap());
    let args = HookArgs { hook_token_account: account, ..HookArgs::default() };
    let mut fixture = Fixture::start(api.clone(), args, &[]);
    let known = pod("known");
    fixture.until(|fixture| fixture.hook_calls.hooks_for(&known).is_some()).await;
    let reported = fixture.ask_until_reported(&pod("a"), &question("lb")).await;
    assert!(
        reported.contains("serviceaccounts/token") && reported.contains("podward.io/hooks/lb"),
        "{reported}"
    );
    assert_eq!(*server.calls.borrow(), 0);
}

/// A server that requires a client certificate: the probe of a registration succeeds only where calls do.
#[tokio::test]
async fn a_probe_presents_the_client_certificate_of_calls() {
    let (own, dir) = (TestIdentity::new(), tempfile::tempdir().unwrap());
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("cert"), &own.certificate).unwrap();
    std::fs::write(path("key"), &own.key).unwrap();
    let options = ServerOptions { client_ca: Some(own.certificate.clone()), ..ServerOptions::default() };
    let server = HookServer::start_with(options, |_| async { Ok(done("")) }).await;
    let endpoint = podward_api::Endpoint {
        url: format!("https://{}", server.address),
        ca_certificates: server.identity.certificate.clone(),
        server_name: None,
    };
    let args = HookArgs {
        hook_client_cert: Some(path("cert")),
        hook_client_key: Some(path("key")),
        ..HookArgs::default()
    };
    HookProbe::new(args, dialer()).probe(&endpoint, false).await.unwrap();
    let problem = HookProbe::new(HookArgs::default(), dialer()).probe(&endpoint, false).await.unwrap_err();
    assert!(problem.contains("could not connect") && problem.contains("CertificateRequired"), "{problem}");
    assert_eq!(*server.calls.borrow(), 0, "a probe is not a question");
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
    let identity = TestIdentity::new();
    let endpoint = json!({"url": url, "caCertificates": identity.certificate});
    let hooks = [hook("dead", json!({"endpoint": endpoint})), fast.hook("fast", json!({}))];
    let mut fixture = Fixture::with(&hooks, &[]).await;
    let pods: Vec<_> = (0..1000).map(|index| pod(&format!("web-{index}"))).collect();
    for pod in &pods {
        fixture.hook_calls.ask(pod, &[question("dead"), question("fast")]);
    }
    let is_done =
        |fixture: &Fixture, pod| matches!(fixture.answer(pod, &question("fast")), Some(HookAnswer::Done(_)));
    fixture.until(|fixture| pods.iter().all(|pod| is_done(fixture, pod))).await;
    fixture.until(|fixture| super::reported(fixture.answer(&pods[999], &question("dead"))).is_some()).await;
    assert_eq!(*fast.calls.borrow(), 1000, "each was asked once");
    // As many as may be in flight before it is known to be dead, and some probes.
    let tried = connections.load(std::sync::atomic::Ordering::SeqCst);
    assert!(tried <= 64 + 20, "{tried} connections");
}

#[tokio::test]
async fn a_cancelled_question_is_cancelled_at_the_hook() {
    let server = HookServer::start(|_| std::future::pending()).await;
    let fixture = Fixture::with(&[server.hook("lb", json!({}))], &[]).await;
    let (mut calls, mut ended) = (server.calls.clone(), server.ended.clone());
    for (round, end) in [true, false].into_iter().enumerate() {
        fixture.hook_calls.ask(&pod("a"), &[question("lb")]);
        let reached = tokio::time::timeout(TEST_TIMEOUT, calls.wait_for(|calls| *calls == round + 1));
        reached.await.unwrap().unwrap();
        if end {
            fixture.hook_calls.ask(&pod("a"), &[]);
        } else {
            fixture.hook_calls.forget(pod("a").uid());
        }
        let over = tokio::time::timeout(TEST_TIMEOUT, ended.wait_for(|ended| *ended == round + 1));
        over.await.unwrap().unwrap();
    }
}

/// The attack: a team writes a URL that leads to Podward's own host, and reads from the error which ports are open.
#[tokio::test]
async fn a_hook_of_a_namespace_does_not_lead_to_refused_addresses() {
    let server = HookServer::start(|_| async { Ok(done("")) }).await;
    let closed = server.hook("shop.closed", json!({"namespace": "shop"}));
    let mut open = closed.clone();
    open["metadata"]["name"] = json!("shop.open");
    let mut closed = closed;
    closed["spec"]["endpoint"]["url"] = json!("https://127.0.0.1:1");
    let mut fixture = Fixture::with(&[open, closed], &[]).await;
    let mut texts = Vec::new();
    for name in ["shop.open", "shop.closed"] {
        texts.push(fixture.ask_until_reported(&pod("a"), &question(name)).await);
    }
    assert!(texts[0].contains("its host has no address that hooks of a namespace may have"), "{texts:?}");
    let without_url =
        |text: &String| text.split_once("://").map(|(_, rest)| rest.split_once(' ').unwrap().1.to_owned());
    assert_eq!(without_url(&texts[0]), without_url(&texts[1]));
    assert_eq!(*server.calls.borrow(), 0);
}
