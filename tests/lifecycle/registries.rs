//! Pods in service registries outside Kubernetes, with real servers.

mod access;
mod answers;
mod bound;
mod credentials;
mod drift;
mod explained;
mod faults;
mod faulty_proxy;
mod identity;
mod kruise;
mod lost_node;
mod own;
mod own_http;
mod pages;
mod removal_limit;
mod replicas;
mod stale_lists;
mod steer;
mod traced;
mod unscheduled;

use podward_e2e::Test;

pub(crate) fn tests() -> Vec<Test> {
    [
        access::tests(),
        own::tests(),
        own_http::tests(),
        drift::tests(),
        faults::tests(),
        answers::tests(),
        credentials::tests(),
        identity::tests(),
        lost_node::tests(),
        removal_limit::tests(),
        steer::tests(),
        kruise::tests(),
        pages::tests(),
        explained::tests(),
        replicas::tests(),
        stale_lists::tests(),
        traced::tests(),
        unscheduled::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
