//! Rules whose author wants to reach what only Podward can reach, to learn what is there, or to keep others waiting.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::Response;
use parking_lot::Mutex;
use podward_runtime::address_policy::{AddressPolicy, ApiServerAddresses, GuardedDialer, Resolve};
use podward_support::metrics_text;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use super::super::client::WebhookEndpoint;
use super::super::outcome::RuleWebhookOutcome;
use super::super::wire::WebhookFailure;
use super::super::{WebhookRuleId, WebhookVerdict};
use super::fixture::{TEST_TIMEOUT, WebhookFixture, id, local_dialer, rule};
use super::waiting;
use super::webhook_server::{WebhookAnswer, WebhookServer, json as answer, text};

/// What must not get out.
const SECRET: &str = "TOP-SECRET";
const LIMIT: Duration = Duration::from_millis(300);

/// Returns a dialer that allows these networks. The API server is at 10.96.0.1.
fn dialer(allowed: &[&str]) -> GuardedDialer {
    let allowed: Vec<_> = allowed.iter().map(|network| network.parse().unwrap()).collect();
    let api_server = ApiServerAddresses::fixed(["10.96.0.1".parse().unwrap()]);
    GuardedDialer::new(AddressPolicy::new(&allowed, api_server))
}

async fn fails(url: &str, dialer: &GuardedDialer) -> WebhookFailure {
    let endpoint = WebhookEndpoint::new(url, "", LIMIT, dialer).unwrap();
    endpoint.poll("task", "t").await.unwrap_err()
}

#[tokio::test]
async fn a_rule_that_polls_the_api_server_loopback_or_metadata_is_refused() {
    let server = WebhookServer::start(false, |_, _| async { answer(json!({"success": true})) }).await;
    let port = server.address.port();
    let (dialer, mut texts) = (dialer(&[]), Vec::new());
    for host in [
        "10.96.0.1:443".to_owned(),
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        format!("0.0.0.0:{port}"),
        "169.254.169.254".to_owned(),
        "[fd00:ec2::254]".to_owned(),
        "100.100.100.200".to_owned(),
    ] {
        for scheme in ["http", "https"] {
            let failure = fails(&format!("{scheme}://{host}/x"), &dialer).await;
            assert_eq!(failure.outcome(), RuleWebhookOutcome::NotAllowed, "{host}: {failure:?}");
            texts.push(failure.text().rsplit_once(": ").map(|(_, problem)| problem.to_owned()));
        }
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "the text says which address it is: {texts:?}");
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn a_poll_url_is_checked_although_the_first_url_is_allowed() {
    let outside = WebhookServer::start(false, |_, _| async {
        answer(json!({"success": true, "poll": true, "taskId": "t"}))
    })
    .await;
    let hidden = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let poll = format!("http://{}/poll", hidden.local_addr().unwrap());
    let rule = rule(&outside, json!({"tls": false, "clientConfig": {"poll": {"url": poll}}}));
    let fixture = WebhookFixture::with_dialer(dialer(&["127.0.0.1/32"]));
    fixture
        .until(&rule, &waiting(&["a"]), |found| match &found.verdicts[0] {
            WebhookVerdict::Waiting(reason) => reason.text.contains("no address that rules may lead to"),
            _ => false,
        })
        .await;
    assert!(hidden.accept().now_or_never().is_none(), "the address was connected to");
}

/// Returns an allowed address first, and then loopback.
struct Rebinding(Mutex<VecDeque<SocketAddr>>);

impl Resolve for Rebinding {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let mut answers = self.0.lock();
        let next = if answers.len() > 1 { answers.pop_front() } else { answers.front().copied() };
        async move { Ok(next.into_iter().collect()) }.boxed()
    }
}

#[tokio::test]
async fn a_name_that_is_rebound_to_loopback_does_not_get_there() {
    let server = WebhookServer::start(false, |_, _| async { answer(json!({"success": true})) }).await;
    // Nothing listens on the allowed address.
    let allowed = SocketAddr::new("127.0.0.2".parse().unwrap(), server.address.port());
    let resolver = Rebinding(Mutex::new([allowed, server.address].into()));
    let policy = AddressPolicy::new(&["127.0.0.2/32".parse().unwrap()], ApiServerAddresses::fixed([]));
    let dialer = GuardedDialer::with_resolver(policy, Arc::new(resolver));
    let url = format!("http://rebound.example:{}/x", server.address.port());
    let outcomes = [fails(&url, &dialer).await.outcome(), fails(&url, &dialer).await.outcome()];
    assert_eq!(outcomes, [RuleWebhookOutcome::Unreachable, RuleWebhookOutcome::NotAllowed]);
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn a_redirect_to_a_refused_address_is_not_followed() {
    let server = WebhookServer::start(false, |_, _| async {
        Response::builder()
            .status(302)
            .header("location", format!("http://{SECRET}/"))
            .body(Default::default())
            .unwrap()
    })
    .await;
    let failure = fails(&format!("http://{}/x", server.address), &local_dialer()).await;
    assert!(failure.text().contains("redirects are not followed"), "{failure:?}");
    assert!(!failure.text().contains(SECRET), "{failure:?}");
}

#[tokio::test]
async fn nothing_of_a_response_is_in_verdicts_statuses_and_reports() {
    let secret = |value: &str| value.replace('*', SECRET);
    for (status, body, expected) in [
        (500, secret("*"), "it answered 500 Internal Server Error (no media type, 10 bytes)"),
        (403, secret(r#"{"kind":"Status","message":"*"}"#), "it answered 403 Forbidden"),
        (200, secret("<html>*</html>"), "it is not JSON"),
        (200, secret(r#"["*"]"#), "it is no JSON object"),
        (200, secret(r#"{"success":"*"}"#), "success is not true or false"),
        (200, secret(r#"{"message":["*"]}"#), "message is no text"),
        (200, secret(r#"{"finishedNames":"*"}"#), "finishedNames is no list of names"),
        (200, secret(r#"{"poll":"*"}"#), "poll is not true or false"),
        // Not the answer of a webhook.
        (200, secret(r#"{"message":"*","code":7,"items":["*"]}"#), "rejected"),
    ] {
        let served = body.clone();
        let server = WebhookServer::start(false, move |_, _| {
            let body = served.clone();
            async move { text(status, body) }
        })
        .await;
        let fixture = WebhookFixture::new();
        let has_answer = |verdict: &WebhookVerdict| *verdict != WebhookVerdict::NotAnswered;
        let rule = rule(&server, json!({"tls": false}));
        let found = fixture.until(&rule, &waiting(&["a"]), |found| has_answer(&found.verdicts[0])).await;
        let shown = format!("{found:?} {:?}", fixture.failing.lock());
        assert!(shown.contains(expected), "{body}: {shown}");
        assert!(!shown.contains(SECRET), "{body}: {shown}");
    }
}

#[tokio::test]
async fn a_media_type_is_shown_only_if_it_is_one() {
    let with_type = |media_type: &'static str| {
        move |_, _| async move {
            let mut answer: WebhookAnswer = text(404, "no");
            answer.headers_mut().insert("content-type", media_type.parse().unwrap());
            answer
        }
    };
    for (media_type, shown) in [
        ("text/html; charset=SECRET", "(text/html, 2 bytes)"),
        ("SECRET <SECRET>", "(an invalid media type, 2 bytes)"),
        (
            "text/SECRETSECRETSECRETSECRETSECRETSECRETSECRETSECRETSECRETSECRETSECRET",
            "(an invalid media type,",
        ),
    ] {
        let server = WebhookServer::start(false, with_type(media_type)).await;
        let failure = fails(&format!("http://{}/x", server.address), &local_dialer()).await;
        assert!(failure.text().contains(shown) && !failure.text().contains("SECRET"), "{failure:?}");
    }
}

/// Accepts connections, and does `work` with each.
async fn listen<F>(work: impl Fn(TcpStream) -> F + Send + 'static) -> (SocketAddr, AbortOnDropHandle<()>)
where
    F: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            work(stream).await;
        }
    });
    (address, AbortOnDropHandle::new(task))
}

#[tokio::test]
async fn an_open_port_and_a_closed_port_give_the_same_text() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (closing, _one) = listen(|stream| async { drop(stream) }).await;
    let (silent, _two) = listen(|stream| async move {
        let _open = stream;
        std::future::pending().await
    })
    .await;
    let (other, _three) = listen(|mut stream| async move {
        stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").await.unwrap();
        let _open = stream;
        std::future::pending().await
    })
    .await;
    let untrusted = WebhookServer::start(true, |_, _| async { answer(json!({})) }).await;
    let plain = WebhookServer::start(false, |_, _| async { answer(json!({})) }).await;
    let dialer = local_dialer();
    let mut texts = Vec::new();
    for (scheme, address) in [
        ("http", closed),
        ("http", closing),
        ("http", silent),
        ("http", other),
        ("http", untrusted.address),
        ("https", closed),
        ("https", closing),
        ("https", silent),
        ("https", other),
        ("https", untrusted.address),
        ("https", plain.address),
    ] {
        let failure = fails(&format!("{scheme}://{address}/x"), &dialer).await;
        assert!(!failure.reason_to_log().is_empty(), "{failure:?}");
        let text = failure.text().replace("https", "http");
        texts.push(text.replace(&address.to_string(), "HOST"));
    }
    // Nor does a name that does not exist have another text.
    let failure = fails("http://no-such-name.invalid/x", &dialer).await;
    texts.push(failure.text().replace("no-such-name.invalid", "HOST"));
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains("could not connect to HOST, or it gave no valid answer"), "{texts:?}");
}

#[tokio::test]
async fn sixty_four_slow_rules_of_one_namespace_do_not_delay_another_namespace() {
    let mut slow = Vec::new();
    for _ in 0..16 {
        slow.push(WebhookServer::start(false, |_, _| std::future::pending()).await);
    }
    let fixture = WebhookFixture::new();
    let mut registry = Registry::default();
    fixture.metrics.register(&mut registry);
    for number in 0..64 {
        let rule = rule(&slow[number % slow.len()], json!({"tls": false}));
        let id = WebhookRuleId { namespace: "attacker".to_owned(), ..id(&format!("slow-{number}")) };
        fixture.webhooks.consult(&id, &rule, None, &waiting(&["a"]), None);
    }
    let waiting_calls = || {
        let text = metrics_text(&registry);
        let line = text.lines().find(|line| line.starts_with("webhook_calls_waiting ")).map(str::to_owned);
        line.unwrap_or_default()
    };
    let all_wait = async {
        while waiting_calls() != "webhook_calls_waiting 56" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, all_wait)
        .await
        .unwrap_or_else(|_| unreachable!("{}", waiting_calls()));
    // The slow calls never end. The call of the other namespace begins and ends before them.
    let server = WebhookServer::start(false, |_, _| async { answer(json!({"success": true})) }).await;
    fixture.passed(&rule(&server, json!({"tls": false})), &waiting(&["a"])).await;
    assert_eq!(waiting_calls(), "webhook_calls_waiting 56");
    let begun: usize = slow.iter().map(|server| server.received().len()).sum();
    assert!(begun <= 8, "{begun} calls of the attacker have begun");
}

#[test]
fn an_answer_without_success_shows_no_message() {
    use super::super::wire::PostAnswer;
    let message = |answer: Value| PostAnswer::read(answer.to_string().as_bytes()).unwrap().message;
    assert_eq!(message(json!({"message": SECRET})), "");
    assert_eq!(message(json!({"message": SECRET, "success": null})), "");
    assert_eq!(message(json!({"message": "not yet", "success": false})), "not yet");
}
