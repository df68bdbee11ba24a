//! The test bed tested with the real thing. The first run builds the programs.

// A helper of a test fails as a test does.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "bed/control_plane.rs"]
mod control_plane;
#[path = "bed/detached.rs"]
mod detached;
#[path = "bed/ends.rs"]
mod ends;
#[path = "bed/node.rs"]
mod node;
#[path = "bed/simulated.rs"]
mod simulated;
#[path = "bed/support.rs"]
mod support;
