//! Attempts to reach an address that is refused.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::Uri;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tower::Service;

use super::super::{
    AddressClass, AddressPolicy, ApiServerAddresses, DialError, GuardedConnector, GuardedDialer, Resolve,
};
use super::{ip, policy};

const LIMIT: Duration = Duration::from_secs(30);

/// A resolver that returns the next answer for each question, and the last one forever.
struct Script {
    answers: Mutex<VecDeque<Vec<SocketAddr>>>,
    questions: Mutex<Vec<String>>,
}

impl Script {
    fn new(answers: impl IntoIterator<Item = Vec<SocketAddr>>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), questions: Mutex::default() })
    }
}

impl Resolve for Script {
    fn resolve<'a>(&'a self, host: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        self.questions.lock().push(host.to_owned());
        let mut answers = self.answers.lock();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        async { answer.ok_or_else(|| io::Error::other("there is no such name")) }.boxed()
    }
}

/// Listens on loopback, where the tests must not get to.
async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn is_asked_for(listener: &TcpListener) -> bool {
    listener.accept().now_or_never().is_some()
}

#[tokio::test]
async fn odd_spellings_of_loopback_are_refused() {
    let (listener, address) = listener().await;
    let dialer = GuardedDialer::new(policy(&[]));
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0x7f.1",
        "0",
        "0.0.0.0",
        "localhost",
    ] {
        match dialer.connect(host, address.port(), LIMIT).await {
            Err(DialError::NotAllowed { class: AddressClass::ThisHost, .. }) => {}
            // Resolvers differ in what they accept.
            Err(DialError::Name { .. }) => assert!(!matches!(host, "127.0.0.1" | "0.0.0.0"), "{host}"),
            other => unreachable!("{host}: {other:?}"),
        }
    }
    for host in ["::1", "::ffff:127.0.0.1", "::127.0.0.1", "::"] {
        let refused = dialer.connect(host, address.port(), LIMIT).await;
        assert!(matches!(refused, Err(DialError::NotAllowed { .. })), "{host}: {refused:?}");
    }
    assert!(!is_asked_for(&listener));
}

#[tokio::test]
async fn a_url_with_a_literal_address_is_checked_like_a_name() {
    let (listener, address) = listener().await;
    let mut connector = GuardedConnector::new(GuardedDialer::new(policy(&[])), LIMIT);
    for url in [
        format!("http://{address}/x"),
        format!("https://{address}/x"),
        format!("http://[::ffff:127.0.0.1]:{}/", address.port()),
        "http://[::1]/".to_owned(),
        "https://169.254.169.254/latest/meta-data".to_owned(),
        "http://10.96.0.1/".to_owned(),
    ] {
        let refused = connector.call(url.parse::<Uri>().unwrap()).await;
        assert!(matches!(refused, Err(DialError::NotAllowed { .. })), "{url}: {refused:?}");
    }
    assert!(!is_asked_for(&listener));
}

/// The name has an allowed address when it is checked, and loopback when it is resolved again.
#[tokio::test]
async fn a_name_that_is_rebound_to_loopback_between_check_and_connect_is_resolved_once() {
    let (listener, address) = listener().await;
    // An address for documentation (RFC 5737): no connection, or none in time.
    let public = SocketAddr::new(ip("192.0.2.1"), address.port());
    let resolver = Script::new([vec![public], vec![address]]);
    let dialer = GuardedDialer::with_resolver(policy(&[]), resolver.clone());
    let limit = Duration::from_millis(50);
    let failed = dialer.connect("rebound.example", address.port(), limit).await.unwrap_err();
    assert!(matches!(failed, DialError::Tcp { address, .. } if address == public), "{failed:?}");
    assert_eq!(resolver.questions.lock().len(), 1);
    // The next call resolves again, and refuses.
    let refused = dialer.connect("rebound.example", address.port(), LIMIT).await.unwrap_err();
    assert!(matches!(refused, DialError::NotAllowed { .. }), "{refused:?}");
    assert!(!is_asked_for(&listener));
}

#[tokio::test]
async fn only_the_allowed_addresses_of_a_name_are_tried() {
    let (listener, address) = listener().await;
    let (second, allowed) = {
        let listener = TcpListener::bind(SocketAddr::new(ip("127.0.0.2"), address.port())).await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    };
    let resolver = Script::new([vec![address, allowed]]);
    let dialer = GuardedDialer::with_resolver(policy(&["127.0.0.2/32"]), resolver);
    let stream = dialer.connect("both.example", address.port(), LIMIT).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), allowed);
    assert!(is_asked_for(&second) && !is_asked_for(&listener));
}

#[tokio::test]
async fn an_address_of_this_host_other_than_loopback_is_refused() {
    // The kernel of a pod or a machine connects to its own address from the same address. On a machine without another
    // address there is nothing to try.
    let Ok(probe) = std::net::UdpSocket::bind("0.0.0.0:0") else { return };
    if probe.connect("192.0.2.1:9").is_err() {
        return;
    }
    let own = probe.local_addr().unwrap().ip();
    let listener = TcpListener::bind((own, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let dialer = GuardedDialer::new(policy(&[]));
    let refused = dialer.connect(&own.to_string(), address.port(), LIMIT).await.unwrap_err();
    assert!(matches!(refused, DialError::NotAllowed { class: AddressClass::ThisHost, .. }), "{refused:?}");
    let allowing = GuardedDialer::new(policy(&[&format!("{own}/32")]));
    allowing.connect(&own.to_string(), address.port(), LIMIT).await.unwrap();
}

#[tokio::test]
async fn nothing_is_connected_to_before_the_api_server_is_known() {
    let (listener, address) = listener().await;
    let allowed = ["127.0.0.0/8".parse().unwrap()];
    let unknown = AddressPolicy::new(&allowed, ApiServerAddresses::of_client("10.0.0.1", None));
    let failed = GuardedDialer::new(unknown).connect("127.0.0.1", address.port(), LIMIT).await.unwrap_err();
    assert!(matches!(failed, DialError::ApiServerUnknown), "{failed:?}");
    assert!(!is_asked_for(&listener));
}

#[tokio::test]
async fn the_name_of_the_api_server_is_refused_by_each_of_its_addresses() {
    let known = ApiServerAddresses::of_client("api.example", None);
    known.set_service([]);
    known.set_endpoints([]);
    // The name alternates between two addresses.
    let (one, two) = (SocketAddr::new(ip("192.0.2.1"), 443), SocketAddr::new(ip("192.0.2.2"), 443));
    let resolver = Script::new([vec![one], vec![one], vec![two], vec![one]]);
    let dialer = GuardedDialer::with_resolver(AddressPolicy::new(&[], known), resolver.clone());
    for _ in 0..2 {
        let refused = dialer.connect("alias.example", 443, LIMIT).await.unwrap_err();
        assert!(
            matches!(refused, DialError::NotAllowed { class: AddressClass::ApiServer, .. }),
            "{refused:?}"
        );
    }
    assert_eq!(resolver.questions.lock().as_slice(), ["api.example", "alias.example"].repeat(2));
    resolver.answers.lock().clear();
    let failed = dialer.connect("alias.example", 443, LIMIT).await.unwrap_err();
    assert!(matches!(failed, DialError::ApiServerName { .. }), "{failed:?}");
}
