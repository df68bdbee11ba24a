//! The state machine of one rule's webhook: which calls to make when, and what answers mean. It has no clock and no
//! I/O.
//!
//! At most one batch is in flight; pods that start to wait meanwhile go into the next one. A batch contains all pods
//! that have not passed and are in no task, as in KusionStack. The pods of a task are polled until the task ends; those
//! that it has not approved by then are sent again.

mod answers;
mod calls;
mod reason;
mod settings;
mod state;
mod task;
mod task_history;
mod verdict;
mod waiting_pod;

pub(crate) use calls::{NextCalls, WebhookCall};
pub(crate) use reason::WebhookFingerprint;
#[cfg(test)]
pub(crate) use reason::WebhookReason;
#[cfg(test)]
pub(crate) use settings::TaskPolling;
pub(crate) use settings::{RETRY, WebhookSettings};
pub(crate) use state::WebhookMachine;
pub(crate) use verdict::WebhookVerdict;
#[cfg(test)]
pub(crate) use waiting_pod::CheckKey;
pub(crate) use waiting_pod::WaitingPod;
