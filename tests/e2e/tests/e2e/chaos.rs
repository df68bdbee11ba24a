//! What is taken away from under pods that wait for a hook, in each phase of their lives: nothing is lost, nothing is stuck, nothing
//! is left, and no pod is deleted while it is held.

mod api_server;
mod connections;
mod held;
mod leaders;
mod processes;
mod storm;

use podward_e2e::Test;

pub(crate) fn tests() -> Vec<Test> {
    // The API server last: the cluster's own controllers need a while to find it again.
    let modules =
        [processes::tests(), connections::tests(), leaders::tests(), storm::tests(), api_server::tests()];
    modules.into_iter().flatten().collect()
}
