//! Services: Podward as people install it, two replicas of each service.

mod changes;
mod kinds;
mod last;
mod metrics;
mod outages;
mod place;
mod plain;
mod promise;
mod proxies;
mod registry;
mod replicas;
mod rights;
mod work;

use podward_e2e::Test;

pub(crate) fn tests() -> Vec<Test> {
    let modules = [
        plain::tests(),
        kinds::tests(),
        changes::tests(),
        last::tests(),
        outages::tests(),
        metrics::tests(),
        promise::tests(),
        proxies::tests(),
        replicas::tests(),
        rights::tests(),
    ];
    modules.into_iter().flatten().collect()
}
