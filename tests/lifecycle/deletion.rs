//! Deletes, evictions, scale-ins and rollouts of held pods.

mod budgets;
mod busy;
mod cancel;
mod drain;
mod evictions;
mod held_and_allowed;
mod job_ends;
mod kinds;
pub(crate) mod lost_node;
pub(crate) mod objects;
mod other_admission;
pub(crate) mod own_nodes;
mod owners;
mod queue_worker;
mod replay;
mod replicas;
mod requesters;
mod rollouts;
mod scale_in;
mod stateful_drains;

use podward_e2e::Test;

pub(crate) fn tests() -> Vec<Test> {
    let modules = [
        held_and_allowed::tests(),
        evictions::tests(),
        budgets::tests(),
        drain::tests(),
        stateful_drains::tests(),
        cancel::tests(),
        scale_in::tests(),
        rollouts::tests(),
        kinds::tests(),
        job_ends::tests(),
        owners::tests(),
        own_nodes::tests(),
        lost_node::tests(),
        busy::tests(),
        queue_worker::tests(),
        replicas::tests(),
        requesters::tests(),
        other_admission::tests(),
    ];
    modules.into_iter().flatten().collect()
}
