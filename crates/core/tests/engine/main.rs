//! The engine's tests: the reference's tables row by row, its known faults, and the safety properties over random
//! interleavings.
#![allow(missing_docs)]

mod clients;
mod controller;
mod endings;
mod explanations;
mod faults;
mod interleavings;
mod patches;
mod repeats;
mod reviews;
mod rules;
mod tables;
mod words;
mod world;
