//! Addresses at which others choose the pod of a connection: one of a Service, or several with health checks, as behind a
//! load balancer.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use crate::{
    args::ClientArgs,
    exchange::{self, exchange},
    pool,
};

/// The time after which a health check without a response has failed.
const TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Target {
    address: SocketAddr,
    healthy: AtomicBool,
}

/// The targets, used in turn.
#[derive(Debug)]
pub(crate) struct BalancedTargets {
    targets: Vec<Target>,
    next: AtomicUsize,
    health_port: Option<u16>,
    interval: Duration,
}

impl BalancedTargets {
    pub(super) fn new(args: &ClientArgs) -> Self {
        let target = |&address| Target { address, healthy: AtomicBool::new(true) };
        Self {
            targets: args.target.iter().map(target).collect(),
            next: AtomicUsize::new(0),
            health_port: args.health_port,
            interval: args.health_interval,
        }
    }

    /// Returns the number of targets.
    pub(super) fn count(&self) -> usize {
        self.targets.len()
    }

    /// Returns the next healthy target. Returns the next one if none is healthy, as load balancers do.
    pub(super) fn next(&self) -> SocketAddr {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let in_turn = (0..self.count()).map(|step| &self.targets[(turn + step) % self.count()]);
        let mut healthy = in_turn.filter(|target| target.healthy.load(Ordering::Relaxed));
        healthy.next().unwrap_or(&self.targets[turn % self.count()]).address
    }

    /// Checks the health of all targets, again and again. Does nothing if there is no health port.
    pub(super) async fn check_forever(&self) {
        let Some(port) = self.health_port else { return std::future::pending().await };
        let mut due = tokio::time::interval(self.interval);
        loop {
            due.tick().await;
            for target in &self.targets {
                let healthy = is_healthy(SocketAddr::new(target.address.ip(), port)).await;
                target.healthy.store(healthy, Ordering::Relaxed);
            }
        }
    }
}

async fn is_healthy(at: SocketAddr) -> bool {
    let check = async {
        let mut stream = pool::open(at).await.ok()?;
        exchange(&mut stream, &exchange::request(&at.to_string(), "/healthz", false)).await.ok()
    };
    matches!(tokio::time::timeout(TIMEOUT, check).await, Ok(Some(answer)) if answer.status == 200)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn healthy_targets_take_turns() {
        let args = ["x", "--target", "10.0.0.1:80", "--target", "10.0.0.2:80", "--target", "10.0.0.3:80"];
        let args = ClientArgs::parse_from(args.into_iter().chain(["--control", "127.0.0.1:0"]));
        let targets = BalancedTargets::new(&args);
        let next = || targets.next().ip().to_string();
        assert_eq!([next(), next(), next()], ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        targets.targets[1].healthy.store(false, Ordering::Relaxed);
        assert_eq!([next(), next(), next()], ["10.0.0.1", "10.0.0.3", "10.0.0.3"]);
        for target in &targets.targets {
            target.healthy.store(false, Ordering::Relaxed);
        }
        assert_eq!(next(), "10.0.0.1", "somewhere it has to go");
    }
}
