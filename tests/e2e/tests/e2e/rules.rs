//! PodTransitionRules on a real cluster, with everything joined: who is let through, who waits and is told why, and what webhooks are
//! asked.

mod admission;
mod again;
mod budgets;
mod changes;
mod count;
mod crowd;
mod failing;
mod leaders;
mod made;
mod missing;
mod namespaces;
mod polling;
mod results;
mod said;
mod server;
mod webhooks;

use podward_e2e::Test;

pub(crate) fn tests() -> Vec<Test> {
    let modules = [
        budgets::tests(),
        crowd::tests(),
        leaders::tests(),
        missing::tests(),
        changes::tests(),
        namespaces::tests(),
        said::tests(),
        admission::tests(),
        webhooks::tests(),
        again::tests(),
        polling::tests(),
        failing::tests(),
        results::tests(),
    ];
    modules.into_iter().flatten().collect()
}
