//! The instances of a service that a client discovers through a registry, as clients of Spring Cloud and Dubbo do: it reads
//! a list at an interval, and uses the list until it has read the next one.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Mutex, RwLock};
use podward_registries::{Instance, Registry, ServiceKey};
use tokio::{sync::Notify, time::MissedTickBehavior};

use crate::{args::ClientArgs, registry::RegistryKind, report::DiscoveryReport};

/// The interval of reads until the service has an instance.
const FIRST: Duration = Duration::from_millis(100);

/// The instances of a service, used in turn.
#[derive(Debug)]
pub(crate) struct DiscoveredTargets {
    registry: Arc<dyn Registry>,
    service: ServiceKey,
    /// The interval of reads.
    cache: Duration,
    /// The age at which a list is not used any more.
    max_age: Option<Duration>,
    list: RwLock<ReadList>,
    was_read: Notify,
    next: AtomicUsize,
    report: Mutex<DiscoveryReport>,
}

/// A list as it was read.
#[derive(Debug, Default)]
struct ReadList {
    /// The instances in service, sorted.
    addresses: Vec<SocketAddr>,
    /// When the read began. `None` before the first one.
    began: Option<Instant>,
}

impl DiscoveredTargets {
    /// # Errors
    /// Fails with a message for people if an address of the registry is unusable.
    pub(super) fn new(kind: RegistryKind, args: &ClientArgs) -> Result<Self, String> {
        let registry = kind.connect(&args.registry_address)?;
        let service = args.service.clone().unwrap_or_default();
        Ok(Self { max_age: args.max_age, ..Self::of(registry, service, args.cache) })
    }

    pub(crate) fn of(registry: Arc<dyn Registry>, service: String, cache: Duration) -> Self {
        Self {
            registry,
            service: ServiceKey { name: service, ..ServiceKey::default() },
            cache,
            max_age: None,
            list: RwLock::default(),
            was_read: Notify::new(),
            next: AtomicUsize::new(0),
            report: Mutex::default(),
        }
    }

    pub(super) fn service(&self) -> &str {
        &self.service.name
    }

    pub(super) fn count(&self) -> usize {
        self.list.read().addresses.len()
    }

    /// Waits until the list may be used by its age.
    pub(super) async fn until_usable(&self) {
        let mut waits = false;
        loop {
            let next_read = self.was_read.notified();
            if self.is_usable() {
                return;
            }
            if !std::mem::replace(&mut waits, true) {
                self.report.lock().waited += 1;
            }
            next_read.await;
        }
    }

    fn is_usable(&self) -> bool {
        let Some(max_age) = self.max_age else { return true };
        self.list.read().began.is_some_and(|began| began.elapsed() <= max_age)
    }

    pub(super) fn next(&self) -> Option<SocketAddr> {
        let addresses = &self.list.read().addresses;
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        addresses.get(turn.checked_rem(addresses.len())?).copied()
    }

    pub(super) fn contains(&self, address: SocketAddr) -> bool {
        self.list.read().addresses.binary_search(&address).is_ok()
    }

    pub(super) fn report(&self) -> DiscoveryReport {
        self.report.lock().clone()
    }

    /// Reads the list at the interval, again and again, and calls `changed` after each change of it. A read that fails
    /// leaves the list as it is.
    pub(super) async fn read_forever(&self, changed: impl Fn()) {
        while self.count() == 0 {
            self.read().await;
            changed();
            tokio::time::sleep(FIRST).await;
        }
        let mut due = tokio::time::interval(self.cache);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            due.tick().await;
            if self.read().await {
                changed();
            }
        }
    }

    /// Reads the list once, and returns whether it has changed.
    async fn read(&self) -> bool {
        let began = Instant::now();
        let read = self.read_any().await;
        let took = began.elapsed().as_secs_f64() * 1e3;
        let mut report = self.report.lock();
        report.longest_read_ms = report.longest_read_ms.max(took);
        match read {
            Ok(addresses) => {
                report.reads += 1;
                let list = ReadList { addresses, began: Some(began) };
                let before = std::mem::replace(&mut *self.list.write(), list);
                self.was_read.notify_waiters();
                before.addresses != self.list.read().addresses
            }
            Err(problem) => {
                report.failed_reads += 1;
                report.last_problem = Some(problem);
                false
            }
        }
    }

    /// Reads the list at the first address that answers.
    async fn read_any(&self) -> Result<Vec<SocketAddr>, String> {
        let mut problem = "the registry has no address".to_owned();
        for address in 0..self.registry.addresses().len() {
            match self.registry.instances(address, &self.service).await {
                Ok(found) => return in_service(&found),
                Err(error) => problem = error.to_string(),
            }
        }
        Err(problem)
    }
}

/// Returns the addresses of the instances in service, sorted.
fn in_service(found: &[Instance]) -> Result<Vec<SocketAddr>, String> {
    let address = |instance: &Instance| {
        let ip: Result<IpAddr, _> = instance.host.parse();
        let ip = ip.map_err(|_| format!("the host {:?} of an instance is no IP address", instance.host))?;
        Ok(SocketAddr::new(ip, instance.port))
    };
    let mut list: Vec<SocketAddr> =
        found.iter().filter(|instance| instance.in_service).map(address).collect::<Result<_, String>>()?;
    list.sort_unstable();
    list.dedup();
    Ok(list)
}

#[cfg(test)]
pub(crate) mod tests;
