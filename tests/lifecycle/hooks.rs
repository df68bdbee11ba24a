//! Hooks on a real cluster: their calls, and the effects on pods when their answers are missing or wrong.

mod attached;
mod deadlines;
mod garbage;
mod many;
mod order;
mod others;
mod refusals;
mod registering;
pub(crate) mod registry;
mod removal;
pub(crate) mod reports;
pub(crate) mod script;
pub(crate) mod server;
mod slow_hooks;
mod untrusted_writers;

use podward_e2e::Test;

pub(crate) fn tests() -> Vec<Test> {
    let modules = [
        deadlines::tests(),
        removal::tests(),
        order::tests(),
        slow_hooks::tests(),
        attached::tests(),
        registering::tests(),
        others::tests(),
        refusals::tests(),
        garbage::tests(),
        untrusted_writers::tests(),
        many::tests(),
    ];
    modules.into_iter().flatten().collect()
}
