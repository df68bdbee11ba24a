//! Operations on one pod, by the labels of the protocol, with the rights of the user.

mod begun;
mod end;
mod pod_client;
mod progress;

pub(crate) use begun::Begun;
pub(crate) use pod_client::{PodClient, PodPlace};
pub(crate) use progress::{Goal, GoalName};
