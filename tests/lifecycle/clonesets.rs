//! CloneSets of Podward's own controller, with operators that answer hooks.

mod claims;
mod deletions;
pub(crate) mod every_write;
mod limits;
pub(crate) mod made;
mod others;
mod real_node;
mod updates;
mod volumes;
mod waits;
mod watched_objects;

use podward_e2e::Test;

pub(crate) fn tests() -> Vec<Test> {
    [
        updates::tests(),
        deletions::tests(),
        claims::tests(),
        others::tests(),
        waits::tests(),
        limits::tests(),
        real_node::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
