//! The traffic-controller: answers Podward's questions for Services.
//!
//! ```text
//!  watches of EndpointSlices, Services, nodes ──► world ──┐
//!  metrics of each node's kube-proxy ──► proxy ───────────┼──► verdict ──► handler ◄── gRPC HookHandler.Handle
//!  /in-flight of a pod ───────────────────────────────────┘                   ▲
//!  registration ──► gRPC HookRegistry.Register                              memory
//! ```
//!
//! It is a hook like any other: it registers over the public API, and is one consumer of each opted-in pod for all Services.
//! [`world`], [`proxy`] and [`verdict`] are functions of what is known, without clock or I/O.
//!
//! # Guarantees
//! - PROVEN is said only of what was seen: in all slices, in the rules of the proxy of every node that is Ready, and at the pod.
//! - An empty cache, an API error or an unreadable proxy is never taken for "no traffic".
//! - Each replica answers by itself. What one remembers of a question are its waits; a new one begins them again.
//! - A node's proxy is read only while a pod waits for it, at most ten times a second, for all pods together.
#![forbid(unsafe_code)]

mod args;
mod clock;
mod handler;
mod hub;
mod in_flight;
mod memory;
mod metrics;
mod proxy;
mod registration;
mod scraper;
mod serve;
mod verdict;
mod watches;
mod world;

pub use args::Args;
pub use serve::run;
