//! Explanations for people: the reason and message of the condition `podward.io/lifecycle`.

mod hooks;
mod planned;
mod pod;

pub use hooks::deadline_of_message;
pub use pod::{Explanation, explain};
