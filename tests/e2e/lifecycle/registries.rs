//! Pods in service registries outside Kubernetes, with real servers.

mod access;
mod bound;
mod drift;
mod explained;
mod faults;
mod kruise;
mod own;
mod reachable;
mod removal_limit;
mod replicas;
mod steer;
mod traced;

use podward_e2e::Test;

pub(crate) fn tests() -> Vec<Test> {
    [
        access::tests(),
        own::tests(),
        drift::tests(),
        faults::tests(),
        removal_limit::tests(),
        steer::tests(),
        kruise::tests(),
        explained::tests(),
        replicas::tests(),
        traced::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
