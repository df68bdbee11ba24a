//! Services, with the usual installation of Podward: two replicas of each service.

mod bound_service;
mod changes;
mod feature_tour;
mod kinds;
mod last_endpoint;
mod least_rights;
mod metrics;
mod node_agent;
mod one_service;
mod outages;
mod proxies;
mod registry;
mod replicas;
mod rollout_traces;
mod runbooks;
pub(crate) mod service_fixture;
mod service_registries;
mod zero_loss;

use podward_e2e::Test;

pub(crate) fn tests() -> Vec<Test> {
    let modules = [
        one_service::tests(),
        kinds::tests(),
        changes::tests(),
        last_endpoint::tests(),
        outages::tests(),
        metrics::tests(),
        node_agent::tests(),
        zero_loss::tests(),
        service_registries::tests(),
        proxies::tests(),
        replicas::tests(),
        least_rights::tests(),
        runbooks::tests(),
        rollout_traces::tests(),
    ];
    modules.into_iter().flatten().collect()
}
