//! PodTransitionRules on a real cluster: which operations are allowed, which wait and why, and the requests to
//! webhooks.

mod admission;
mod budgets;
mod changes;
mod failing;
mod leaders;
mod many_operations;
mod messages;
mod missing;
mod namespaces;
pub(crate) mod objects;
mod polling;
mod repeated_operations;
mod results;
pub(crate) mod server;
mod unavailable_pods;
mod webhooks;

use podward_e2e::Test;

pub(crate) fn tests() -> Vec<Test> {
    let modules = [
        budgets::tests(),
        many_operations::tests(),
        leaders::tests(),
        missing::tests(),
        changes::tests(),
        namespaces::tests(),
        messages::tests(),
        admission::tests(),
        webhooks::tests(),
        repeated_operations::tests(),
        polling::tests(),
        failing::tests(),
        results::tests(),
    ];
    modules.into_iter().flatten().collect()
}
