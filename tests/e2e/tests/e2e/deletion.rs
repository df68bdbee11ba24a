//! Deletes, evictions, scale-ins and roll-outs of pods that are held.

mod budgets;
mod cancel;
mod drain;
mod evictions;
mod kinds;
mod lost_node;
pub(crate) mod made;
mod neighbours;
mod owners;
mod replay;
mod replicas;
mod rollouts;
mod scale_in;
mod verdicts;

use podward_e2e::Test;

pub(crate) fn tests() -> Vec<Test> {
    let modules = [
        verdicts::tests(),
        evictions::tests(),
        budgets::tests(),
        drain::tests(),
        cancel::tests(),
        scale_in::tests(),
        rollouts::tests(),
        kinds::tests(),
        owners::tests(),
        neighbours::tests(),
        lost_node::tests(),
        replicas::tests(),
    ];
    modules.into_iter().flatten().collect()
}
