//! Where the requests of a load go.

mod balanced;
pub(crate) mod discovered;

use std::net::SocketAddr;

use self::{balanced::BalancedTargets, discovered::DiscoveredTargets};
use crate::{args::ClientArgs, report::DiscoveryReport};

/// There is no address to send a request to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoTarget;

/// Where the requests of a load go.
#[derive(Debug)]
pub(crate) enum Targets {
    /// To a Service, or through load balancers, which choose the pod of a connection.
    Balanced(BalancedTargets),
    /// To the instances of a service. The client chooses one for each request.
    Discovered(Box<DiscoveredTargets>),
}

impl Targets {
    /// # Errors
    /// Fails with a message for people if the registry of `args` is unusable.
    pub(crate) fn new(args: &ClientArgs) -> Result<Self, String> {
        Ok(match args.registry {
            Some(kind) => Self::Discovered(Box::new(DiscoveredTargets::new(kind, args)?)),
            None => Self::Balanced(BalancedTargets::new(args)),
        })
    }

    /// Returns the host that requests name.
    pub(crate) fn host(&self) -> String {
        match self {
            Self::Balanced(targets) => targets.next().to_string(),
            Self::Discovered(targets) => targets.service().to_owned(),
        }
    }

    /// Returns the number of good responses in turn after which the targets are known to work.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Balanced(targets) => targets.count(),
            Self::Discovered(targets) => targets.count().max(1),
        }
    }

    /// Waits until the targets may be used by their age.
    pub(crate) async fn until_usable(&self) {
        if let Self::Discovered(targets) = self {
            targets.until_usable().await;
        }
    }

    /// Returns the address of a request. `None` if a request may use any open connection.
    ///
    /// # Errors
    /// Fails if no instance is known.
    pub(crate) fn of_request(&self) -> Result<Option<SocketAddr>, NoTarget> {
        match self {
            Self::Balanced(_) => Ok(None),
            Self::Discovered(targets) => targets.next().map(Some).ok_or(NoTarget),
        }
    }

    /// Returns the address of a new connection.
    ///
    /// # Errors
    /// Fails if no instance is known.
    pub(crate) fn next(&self) -> Result<SocketAddr, NoTarget> {
        match self {
            Self::Balanced(targets) => Ok(targets.next()),
            Self::Discovered(targets) => targets.next().ok_or(NoTarget),
        }
    }

    /// Returns whether connections to an address may be used again.
    pub(crate) fn keeps(&self, address: SocketAddr) -> bool {
        match self {
            Self::Balanced(_) => true,
            Self::Discovered(targets) => targets.contains(address),
        }
    }

    /// Keeps the targets current. Calls `changed` when an address may have left.
    pub(crate) async fn update_forever(&self, changed: impl Fn()) {
        match self {
            Self::Balanced(targets) => targets.check_forever().await,
            Self::Discovered(targets) => targets.read_forever(changed).await,
        }
    }

    /// Returns the reads of the registry. `None` without a registry.
    pub(crate) fn report(&self) -> Option<DiscoveryReport> {
        match self {
            Self::Balanced(_) => None,
            Self::Discovered(targets) => Some(targets.report()),
        }
    }
}
