//! Calls the webhooks of rules, with the HTTP protocol of KusionStack's PodTransitionRules.
//!
//! ```text
//!  namespace worker ──► WebhookDrivers::consult ──► machine (one per rule, pure): the calls to make, their results
//!        ▲                                             ▲   │
//!        │                                             │   ▼
//!        └──────── WebhookObservers::changed ◄────── driver (one per rule) ──► client: POST, and GET for a task
//! ```
//!
//! # Guarantees
//! - An answer counts only for the check requests that the call was about.
//! - Tasks continue after a restart, from the status that [`WebhookDrivers::consult`] returned to be stored.
//! - A webhook can only delay its own rule: the size of requests and answers, the duration and number of calls, and the
//!   number of tasks are bounded. Namespaces share the calls fairly.
//! - A rule does not lead to addresses that only Podward can reach, and its author does not learn what is there: no
//!   answer, except for the fields of the protocol, gets into a text, and one text stands for all the reasons why there
//!   is no answer. The reason is in the log.

mod call_queue;
mod call_slots;
mod client;
mod driver;
mod drivers;
mod failure_throttle;
mod machine;
mod metrics;
mod observers;
mod outcome;
mod rule_id;
mod target;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use drivers::WebhookDrivers;
pub(crate) use machine::{WaitingPod, WebhookFingerprint, WebhookVerdict};
pub(crate) use metrics::WebhookMetrics;
pub(crate) use observers::{PodReader, WebhookObservers};
pub(crate) use rule_id::WebhookRuleId;
pub use wire::{AnswerProblem, PollAnswer, PostAnswer};
