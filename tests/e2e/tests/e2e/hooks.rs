//! Hooks on a real cluster, with everything joined: what they are asked, when, and what becomes of pods when they don't answer as
//! they should.

mod attached;
mod deadlines;
mod garbage;
mod many;
mod neighbours;
mod order;
mod others;
mod refusals;
mod registering;
mod registry;
mod removal;
pub(crate) mod script;
pub(crate) mod server;
mod strangers;
pub(crate) mod told;

use podward_e2e::Test;

pub(crate) fn tests() -> Vec<Test> {
    let modules = [
        deadlines::tests(),
        removal::tests(),
        order::tests(),
        neighbours::tests(),
        attached::tests(),
        registering::tests(),
        others::tests(),
        refusals::tests(),
        garbage::tests(),
        strangers::tests(),
        many::tests(),
    ];
    modules.into_iter().flatten().collect()
}
