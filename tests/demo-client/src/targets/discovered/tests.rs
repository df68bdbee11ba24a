//! A registry whose answers a test sets.

use async_trait::async_trait;
use podward_registries::{Capabilities, Change, MayChange, RegistryError, RegistryErrorKind};

use super::*;

/// What each address of a registry answers: a list, or nothing.
#[derive(Debug, Default)]
pub(crate) struct FakeRegistry {
    addresses: Vec<String>,
    answers: Mutex<Vec<Option<Vec<Instance>>>>,
}

impl FakeRegistry {
    pub(crate) fn new(answers: Vec<Option<Vec<Instance>>>) -> Arc<Self> {
        let addresses = (0..answers.len()).map(|index| format!("registry-{index}")).collect();
        Arc::new(Self { addresses, answers: Mutex::new(answers) })
    }

    pub(crate) fn answers(&self, answers: Vec<Option<Vec<Instance>>>) {
        *self.answers.lock() = answers;
    }
}

#[async_trait]
impl Registry for FakeRegistry {
    fn capabilities(&self) -> Capabilities {
        unreachable!("a client only reads")
    }

    fn addresses(&self) -> &[String] {
        &self.addresses
    }

    async fn services(&self, _: usize, _: &str) -> Result<Vec<ServiceKey>, RegistryError> {
        unreachable!("a client reads one service")
    }

    async fn instances(&self, address: usize, service: &ServiceKey) -> Result<Vec<Instance>, RegistryError> {
        assert_eq!(service.name, "web");
        self.answers.lock()[address].clone().ok_or_else(|| RegistryError {
            doing: "read".to_owned(),
            address: self.addresses[address].clone(),
            reason: "it is down".to_owned(),
            kind: RegistryErrorKind::Unavailable,
        })
    }

    async fn write_while(&self, _: &[Change], _: MayChange<'_>) -> Vec<Result<(), RegistryError>> {
        unreachable!("a client only reads")
    }
}

/// Returns an instance.
pub(crate) fn instance(address: SocketAddr, in_service: bool) -> Instance {
    Instance {
        id: address.to_string(),
        host: address.ip().to_string(),
        port: address.port(),
        cluster: String::new(),
        weight: 1.0,
        metadata: [].into(),
        in_service,
        may_return: false,
        version: None,
    }
}

fn at(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 80))
}

fn targets(registry: &Arc<FakeRegistry>) -> DiscoveredTargets {
    DiscoveredTargets::of(registry.clone(), "web".to_owned(), Duration::from_secs(1))
}

#[tokio::test]
async fn instances_in_service_take_turns() {
    let all =
        vec![instance(at(2), true), instance(at(1), true), instance(at(3), false), instance(at(2), true)];
    let registry = FakeRegistry::new(vec![Some(all)]);
    let targets = targets(&registry);
    assert_eq!(targets.next(), None, "nothing was read yet");
    assert!(targets.read().await);
    assert!(!targets.read().await, "nothing has changed");
    assert_eq!([targets.next(), targets.next(), targets.next()], [Some(at(2)), Some(at(1)), Some(at(2))]);
    assert!(targets.contains(at(1)) && !targets.contains(at(3)));
    registry.answers(vec![Some(Vec::new())]);
    assert!(targets.read().await);
    assert_eq!((targets.next(), targets.report().reads), (None, 3));
}

#[tokio::test]
async fn a_read_that_fails_keeps_the_list() {
    let registry = FakeRegistry::new(vec![None, Some(vec![instance(at(1), true)])]);
    let targets = targets(&registry);
    assert!(targets.read().await, "the second address answers");
    let unusable = Instance { host: "web-1.example.com".to_owned(), ..instance(at(2), true) };
    for (answer, words) in [(None, "it is down"), (Some(vec![unusable]), "web-1.example.com")] {
        registry.answers(vec![None, answer]);
        assert!(!targets.read().await);
        assert_eq!(targets.next(), Some(at(1)));
        let problem = targets.report().last_problem.unwrap();
        assert!(problem.contains(words), "{problem}");
    }
    assert_eq!((targets.report().reads, targets.report().failed_reads), (1, 2));
}

#[tokio::test]
async fn requests_wait_for_a_list_that_is_young_enough() {
    let registry = FakeRegistry::new(vec![Some(vec![instance(at(1), true)])]);
    let max_age = Duration::from_millis(40);
    let targets = Arc::new(DiscoveredTargets { max_age: Some(max_age), ..targets(&registry) });
    let waits = |targets: &Arc<DiscoveredTargets>| {
        let targets = targets.clone();
        tokio::spawn(async move { targets.until_usable().await })
    };
    let first = waits(&targets);
    tokio::task::yield_now().await;
    assert!(!first.is_finished(), "nothing was read yet");
    targets.read().await;
    first.await.unwrap();
    assert_eq!(targets.report().waited, 1);
    std::thread::sleep(2 * max_age);
    let second = waits(&targets);
    tokio::task::yield_now().await;
    registry.answers(vec![None]);
    targets.read().await;
    tokio::task::yield_now().await;
    assert!(!second.is_finished(), "a read that fails shows no list");
    registry.answers(vec![Some(Vec::new())]);
    targets.read().await;
    second.await.unwrap();
    assert_eq!((targets.report().waited, targets.next()), (2, None));
}
