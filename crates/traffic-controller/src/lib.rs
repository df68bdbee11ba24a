//! The traffic-controller is the hook that removes pods from Services and adds them to Services.
//!
//! ```text
//!  watches of EndpointSlices, Services, nodes ──► index ──┐
//!  proxy_scraper: metrics of each kube-proxy ──► proxy ───┼──► verdict ──► handler ◄── gRPC HookHandler.Handle
//!  in_flight: GET /in-flight of a pod ────────────────────┘                   ▲
//!  registration ──► gRPC HookRegistry.Register                          drain_tracker
//! ```
//!
//! It is an ordinary hook: it registers over the public API, and it is one consumer of each opted-in pod for all
//! Services together. `index`, `proxy` and `verdict` are pure: they use neither a clock nor I/O.
//!
//! # Guarantees
//! - The evidence is PROVEN only if it was observed: in all EndpointSlices, in the rules of kube-proxy on every node
//!   that is Ready, and at the pod.
//! - An empty cache, an API error or an unreadable kube-proxy never counts as "no traffic".
//! - Each replica answers on its own. A replica remembers only how long a question has been waiting. A new replica
//!   starts these waits again.
//! - The kube-proxy of a node is read only while a pod waits for it, at most ten times a second, for all pods together.
//!   All kube-proxies together are read at most about 1,000 times a second. In a cluster with several API servers the
//!   `canary` finds out what they have received.
#![forbid(unsafe_code)]

mod args;
mod canary;
mod clock;
mod drain_tracker;
mod handler;
mod in_flight;
mod index;
mod kube_proxy_pages;
mod metrics;
mod node_agent;
mod proxy;
mod proxy_scraper;
mod receipt;
mod registration;
mod serve;
mod shared_index;
mod verdict;
mod watches;

pub use args::Args;
pub use serve::run;
