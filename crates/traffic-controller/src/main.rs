//! The traffic-controller of Podward.

fn main() {}
