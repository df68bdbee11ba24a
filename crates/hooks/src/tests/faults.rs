//! Hook servers that don't work, each in its own way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use podward_core::hooks::HookAnswer;
use podward_proto::v1;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tonic::Status;

use super::hook_server::{HookServer, ServerOptions, TestIdentity, done};
use super::{
    AddressPolicy, ApiServerAddresses, Fixture, GuardedDialer, HookArgs, TEST_TIMEOUT, hook, pod, question,
};
use crate::calls::credentials::HookCredentials;
use crate::calls::endpoint::EndpointClient;
use crate::questions::failure::CallFailureKind;
use crate::registration::registered::endpoint;

/// What is reported of a hook like this.
async fn reported(hook: Value) -> (String, Value) {
    let name = hook["metadata"]["name"].as_str().unwrap().to_owned();
    let mut fixture = Fixture::with(&[hook], &[]).await;
    let reported = fixture.ask_until_reported(&pod("a"), &question(&name)).await;
    assert!(reported.starts_with("it can't be reached: "), "{reported}");
    let status = fixture.api.status(&name, |status| status["lastError"].is_string()).await;
    fixture.stop().await;
    (reported, status)
}

fn condition<'a>(status: &'a Value, type_: &str) -> &'a str {
    let conditions = status["conditions"].as_array();
    let condition = conditions.and_then(|all| all.iter().find(|condition| condition["type"] == type_));
    condition.and_then(|condition| condition["status"].as_str()).unwrap_or_default()
}

#[tokio::test]
async fn the_status_reports_a_hook_that_never_answers() {
    let server = HookServer::start(|_| std::future::pending()).await;
    let (reported, _) = reported(server.hook("lb", json!({"callTimeoutMilliseconds": 100}))).await;
    assert!(reported.contains("no answer") && reported.contains("100ms"), "{reported}");
}

#[tokio::test]
async fn the_status_reports_invalid_answers_of_a_hook() {
    let nothing = HookServer::start(|_| async { Ok(v1::HandleResponse::default()) }).await;
    let (text, _) = reported(nothing.hook("nothing", json!({}))).await;
    assert!(text.contains("without an outcome"), "{text}");

    let giant = HookServer::start(|_| async { Ok(done(&"x".repeat(1_000_000))) }).await;
    let (text, _) = reported(giant.hook("giant", json!({}))).await;
    assert!(text.contains("too large"), "{text}");

    let failing = HookServer::start(|_| async { Err(Status::internal("no database")) }).await;
    let (text, _) = reported(failing.hook("failing", json!({}))).await;
    assert!(text.contains("Internal") && text.contains("no database"), "{text}");

    let html = axum::Router::new().fallback(|| async { axum::response::Html("<html></html>") });
    let web = HookServer::start_web(html).await;
    let (_, status) = reported(web.hook("html", json!({}))).await;
    assert!(status["lastError"].as_str().unwrap().contains("https://"), "{status}");

    let missing = HookServer::start_web(axum::Router::new()).await;
    let (text, _) = reported(missing.hook("missing", json!({}))).await;
    assert!(text.contains("does a podward.v1.HookHandler listen there?"), "{text}");
}

#[tokio::test]
async fn the_status_reports_a_hook_that_rejects_podward() {
    let server = HookServer::start(|_| async { Err(Status::unauthenticated("who are you?")) }).await;
    let (text, _) = reported(server.hook("lb", json!({}))).await;
    assert!(text.contains("who are you?") && text.contains("podward.io/hooks/<hook>"), "{text}");
}

#[tokio::test]
async fn a_hook_with_a_wrong_certificate_is_not_asked() {
    let server = HookServer::start(|_| async { Ok(done("")) }).await;
    let mut hook = server.hook("lb", json!({}));
    hook["spec"]["endpoint"]["caCertificates"] = json!(TestIdentity::new().certificate);
    let (text, status) = reported(hook).await;
    assert!(text.contains("certificate") && text.contains("spec.endpoint.caCertificates"), "{text}");
    assert_eq!((condition(&status, "Reachable"), condition(&status, "Accepted")), ("False", "True"));
    assert_eq!(*server.calls.borrow(), 0);
}

#[tokio::test]
async fn a_self_signed_certificate_of_openssl_must_be_listed_and_valid_for_the_name() {
    let start = async |names: &[&str]| {
        let identity = Some(Arc::new(TestIdentity::by_openssl(names)));
        let options = ServerOptions { identity, ..ServerOptions::default() };
        HookServer::start_with(options, |_| async { Ok(done("by TLS")) }).await
    };
    let server = start(&["localhost", "127.0.0.1"]).await;
    let mut fixture = Fixture::with(&[server.hook("lb", json!({}))], &[]).await;
    assert_eq!(fixture.ask_until_done(&pod("a"), &question("lb")).await, "by TLS");
    fixture.stop().await;

    let mut unlisted = server.hook("unlisted", json!({}));
    unlisted["spec"]["endpoint"]["caCertificates"] =
        json!(TestIdentity::by_openssl(&["127.0.0.1"]).certificate);
    let (text, _) = reported(unlisted).await;
    assert!(text.contains("CaUsedAsEndEntity") && text.contains("spec.endpoint.caCertificates"), "{text}");
    let misnamed = start(&["hooks.example"]).await;
    let (text, _) = reported(misnamed.hook("misnamed", json!({}))).await;
    assert!(text.contains("not valid for name"), "{text}");
}

#[tokio::test]
async fn the_status_reports_a_server_without_tls() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let endpoint =
        json!({"url": format!("https://{address}"), "caCertificates": TestIdentity::new().certificate});
    let (text, status) = reported(hook("closed", json!({ "endpoint": endpoint }))).await;
    assert!(text.contains("could not connect") && text.contains("refused"), "{text}");
    assert_eq!(condition(&status, "Reachable"), "False");
}

/// Starts a server that accepts connections until one of them brings a call, and hangs up on that one.
async fn rude_server(identity: &TestIdentity) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let rude = tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(socket).await else { continue };
            let (mut read, mut buffer) = (0, [0; 1024]);
            // The preface and settings are shorter than that with a call.
            while read < 300 {
                match stream.read(&mut buffer).await {
                    Ok(count) if count > 0 => read += count,
                    _ => break,
                }
            }
            if read >= 300 {
                return;
            }
        }
    });
    (address, rude)
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_is_made_again() {
    let identity = Arc::new(TestIdentity::new());
    let (address, rude) = rude_server(&identity).await;
    let endpoint = json!({"url": format!("https://{address}"), "caCertificates": identity.certificate});
    let mut fixture = Fixture::with(&[hook("lb", json!({ "endpoint": endpoint }))], &[]).await;
    let (web, question) = (pod("a"), question("lb"));
    let reported = fixture.ask_until_reported(&web, &question).await;
    assert!(reported.starts_with("it can't be reached: "), "{reported}");
    rude.await.unwrap();
    let options = ServerOptions { address: Some(address), identity: Some(identity), client_ca: None };
    let _server = HookServer::start_with(options, |_| async { Ok(done("again")) }).await;
    assert_eq!(fixture.ask_until_done(&web, &question).await, "again");
}

/// A pod that such a hook may have added to traffic is not forgotten without its RELEASE.
#[tokio::test]
async fn a_call_that_is_cut_off_may_have_arrived() {
    for is_guarded in [false, true] {
        let identity = TestIdentity::new();
        let (address, rude) = rude_server(&identity).await;
        let given = serde_json::from_value(
            json!({"url": format!("https://{address}"), "caCertificates": identity.certificate}),
        );
        let client = client(&given.unwrap(), is_guarded, TEST_TIMEOUT);
        // Longer than what is sent without a call.
        let request = v1::HandleRequest { question_id: "q".repeat(300), ..v1::HandleRequest::default() };
        let cut_off = client.handle(request.clone(), None).await.unwrap_err();
        assert!(cut_off.may_have_arrived, "{cut_off:?}");
        rude.await.unwrap();
        let refused = client.handle(request, None).await.unwrap_err();
        assert!(!refused.may_have_arrived, "{refused:?}");
    }
}

#[tokio::test]
async fn a_hook_that_comes_back_is_asked_again() {
    let server = HookServer::start(|_| async { Ok(done("first")) }).await;
    let identity = server.identity.clone();
    let mut fixture = Fixture::with(&[server.hook("lb", json!({}))], &[]).await;
    assert_eq!(fixture.ask_until_done(&pod("a"), &question("lb")).await, "first");
    let address = server.stop().await;
    let reported = fixture.ask_until_reported(&pod("b"), &question("lb")).await;
    assert!(reported.contains("could not connect") || reported.contains("cut off"), "{reported}");
    let options = ServerOptions { address: Some(address), identity: Some(identity), client_ca: None };
    let _server = HookServer::start_with(options, |_| async { Ok(done("second")) }).await;
    assert_eq!(fixture.ask_until_done(&pod("b"), &question("lb")).await, "second");
    fixture
        .api
        .status("lb", |status| condition(status, "Reachable") == "True" && status["lastError"].is_null())
        .await;
}

#[tokio::test]
async fn a_slow_hook_is_waited_for() {
    let server = HookServer::start(|_| async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(done("slowly"))
    })
    .await;
    let mut fixture = Fixture::with(&[server.hook("lb", json!({"maxConcurrentCalls": 2}))], &[]).await;
    let pods: Vec<_> = (0..6).map(|index| pod(&format!("web-{index}"))).collect();
    for pod in &pods {
        fixture.hook_calls.ask(pod, &[question("lb")]);
    }
    let is_done =
        |fixture: &Fixture, pod| matches!(fixture.answer(pod, &question("lb")), Some(HookAnswer::Done(_)));
    fixture
        .until(|fixture| {
            let (calls, ended) = (*server.calls.borrow(), *server.ended.borrow());
            assert!(calls <= ended + 2, "{calls} calls have come and {ended} ended");
            pods.iter().all(|pod| is_done(fixture, pod))
        })
        .await;
}

/// A server that stops to answer, and answers again when no question waits for it any more.
#[tokio::test]
async fn a_hook_that_answers_again_is_reachable_without_a_question() {
    let (up, is_up) = watch::channel(false);
    let router = axum::Router::new().fallback(move || {
        let mut is_up = is_up.clone();
        async move {
            is_up.wait_for(|is_up| *is_up).await.unwrap();
            // It does not know the method.
            [("content-type", "application/grpc"), ("grpc-status", "12")]
        }
    });
    let server = HookServer::start_web(router).await;
    let spec = json!({"failurePolicy": "Ignore", "callTimeoutMilliseconds": 100});
    let mut fixture = Fixture::with(&[server.hook("lb", spec)], &[]).await;
    let detail = fixture.ask_until_done(&pod("a"), &question("lb")).await;
    assert!(detail.contains("no answer"), "{detail}");
    fixture.hook_calls.ask(&pod("a"), &[]);
    fixture.api.status("lb", |status| condition(status, "Reachable") == "False").await;
    up.send(true).unwrap();
    fixture.api.status("lb", |status| condition(status, "Reachable") == "True").await;
}

fn client(given: &podward_api::Endpoint, is_guarded: bool, timeout: Duration) -> EndpointClient {
    let allowed = ["127.0.0.0/8".parse().unwrap()];
    let dialer = GuardedDialer::new(AddressPolicy::new(&allowed, ApiServerAddresses::fixed([])));
    let credentials = Arc::new(HookCredentials::new(HookArgs::default(), None, dialer));
    EndpointClient::new(endpoint(given, is_guarded).unwrap(), timeout, credentials, None)
}

/// It is not reported as one that can't be connected to, except to a team, which learns nothing about connections.
#[tokio::test]
async fn a_hook_that_hangs_in_a_check_gives_no_answer() {
    let router = axum::Router::new().fallback(std::future::pending::<()>);
    let server = HookServer::start_web(router).await;
    let given: podward_api::Endpoint =
        serde_json::from_value(server.hook("lb", json!({}))["spec"]["endpoint"].clone()).unwrap();
    let check = async |is_guarded| {
        client(&given, is_guarded, Duration::from_millis(100)).has_recovered().await.unwrap_err()
    };
    let told = check(false).await;
    assert_eq!(told.kind, CallFailureKind::Answer);
    assert_eq!(told.text, format!("no answer from {} to a check within 100ms", given.url));
    let hidden = check(true).await.text;
    assert!(hidden.contains("can't be reached by TLS and HTTP/2") && !hidden.contains("100ms"), "{hidden}");
}

#[tokio::test]
async fn an_unreachable_hook_with_policy_ignore_releases_the_pod() {
    let endpoint = json!({"url": "https://127.0.0.1:1", "caCertificates": TestIdentity::new().certificate});
    let spec = json!({"endpoint": endpoint, "failurePolicy": "Ignore"});
    let mut fixture = Fixture::with(&[hook("lb", spec)], &[]).await;
    let detail = fixture.ask_until_done(&pod("a"), &question("lb")).await;
    assert!(detail.contains("Ignore") && detail.contains("refused"), "{detail}");
}
