//! `kubectl podward why`: each case is caused, and the first line has to name it.

mod asked;
mod attached;
mod creation;
mod ending;
mod endpoints;
mod evicted;
mod nodes;
mod pending;
mod preempted;
mod rollouts;
mod running;
mod sandboxes;
mod starting;
mod webhooks;
mod workloads;

use podward_e2e::Test;

pub(crate) fn tests() -> Vec<Test> {
    let modules = [
        creation::tests(),
        webhooks::tests(),
        pending::tests(),
        preempted::tests(),
        starting::tests(),
        sandboxes::tests(),
        attached::tests(),
        running::tests(),
        endpoints::tests(),
        evicted::tests(),
        nodes::tests(),
        ending::tests(),
        rollouts::tests(),
        workloads::tests(),
    ];
    modules.into_iter().flatten().collect()
}
