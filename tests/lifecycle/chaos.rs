//! Failures while pods wait for a hook in each phase: nothing is lost, stuck or left over, and no pod is deleted
//! while it is held.

mod api_server;
mod connections;
mod leaders;
mod processes;
mod storm;
mod waiting_pods;

use podward_e2e::Test;

pub(crate) fn tests() -> Vec<Test> {
    // The API server is last, because the cluster's own controllers need a while to reconnect to it.
    let modules =
        [processes::tests(), connections::tests(), leaders::tests(), storm::tests(), api_server::tests()];
    modules.into_iter().flatten().collect()
}
