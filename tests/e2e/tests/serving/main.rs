//! End-to-end tests of Services: on a real cluster with all of Podward's services, two of the traffic-controller among them. See
//! [`podward_e2e`].
#![forbid(unsafe_code)]

mod changes;
mod kinds;
mod last;
mod metrics;
mod place;
mod plain;
mod promise;
mod proxies;
mod replicas;

use std::process::ExitCode;

fn main() -> ExitCode {
    let modules = [
        plain::tests(),
        kinds::tests(),
        changes::tests(),
        last::tests(),
        metrics::tests(),
        promise::tests(),
        proxies::tests(),
        replicas::tests(),
    ];
    podward_e2e::run(modules.into_iter().flatten().collect())
}
