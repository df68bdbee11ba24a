//! The rules by which wishes to delete pods are taken: what a workload's own numbers say ([`Workload`]), and what disruption budgets
//! say ([`Budget`]). Pure, as everything here; the numbers come from the API server, read by the lifecycle-controller.

mod account;
mod budget;
mod rollout;
mod workload;

pub use account::Account;
pub use budget::{Budget, Evictee, RENEW_AFTER, RESERVATION_LASTS, Room, Taken, room, still_covers};
pub use rollout::{Rollout, Serving};
pub use workload::{Member, MemberWish, Progress, Ruling, Workload, is_by_workload};
