//! `advance` on one pod.
#![allow(missing_docs)]
fn main() {}
