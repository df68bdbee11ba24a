//! What people are told of a rule that refuses.

use super::Check;

impl Check {
    /// What kind of rule it is: the field of the rule that says what it wants.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Check::Nothing => "nothing",
            Check::Available(_) => "availablePolicy",
            Check::Labels(_) => "labelCheck",
            Check::Webhook => "webhook",
            Check::Unreadable(_) => "unreadable",
        }
    }

    /// What comes next when it refuses a pod, and what people can do about it.
    #[must_use]
    pub const fn next_step(&self) -> &'static str {
        match self {
            Check::Nothing => "nothing is asked",
            Check::Available(_) => {
                "the pod is next, the oldest first, when enough others are in service again; look for pods that don't come back, or allow more"
            }
            Check::Labels(_) => "the pod goes on as soon as its labels match; who sets them has to agree",
            Check::Webhook => {
                "the webhook is asked again by itself; who runs it knows why, and events of the PodTransitionRule say whether it fails"
            }
            Check::Unreadable(_) => "correct the PodTransitionRule: its condition Accepted says where",
        }
    }
}
