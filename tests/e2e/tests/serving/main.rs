//! End-to-end tests of Services: on a real cluster with Podward installed by Helm, two replicas of each service. See
//! [`podward_e2e`].
#![forbid(unsafe_code)]

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

use std::process::ExitCode;

fn main() -> ExitCode {
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
    podward_e2e::run(modules.into_iter().flatten().collect())
}
