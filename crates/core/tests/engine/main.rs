//! The engine's tests: the reference's tables row by row, its known faults, and the safety properties over random
//! interleavings.
#![allow(missing_docs)]

mod faults;
mod interleavings;
mod reviews;
mod tables;
mod world;
