//! Fuzzing of everything that Podward reads from others: admission reviews, answers of rules' webhooks, gRPC messages,
//! labels, annotations and conditions of pods, and custom resources. `cargo xtask fuzz` runs it.
//!
//! ```text
//!  seeds ─► Corpus ─► Mutator (JSON, protobuf, bytes) ─► input ─► Target ─► Outcome
//!              ▲                                                              │
//!              └───────────── inputs with an outcome that is new ◄────────────┘
//! ```
//!
//! There is no instrumentation, because it needs a nightly compiler. Instead, mutations know the format, begin with
//! valid documents, and inputs with a new outcome (another message, another decision) are mutated further.
//!
//! A campaign fails if an input causes a panic or ends the process, breaks a guarantee that the target checks, takes
//! longer than [`campaign::SLOW`], or if the process needs more memory than its limit. The input is stored in a file.
#![forbid(unsafe_code)]

pub mod campaign;
mod corpus;
mod input;
mod memory;
mod mutate;
mod outcome;
mod record;
pub mod supervise;
mod target;
mod targets;

pub use input::Input;
pub use outcome::Outcome;
pub use target::{Format, Target};
pub use targets::targets;
