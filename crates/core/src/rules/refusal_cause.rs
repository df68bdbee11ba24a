//! Why a rule refuses, as a value.

/// Why a rule refuses. Two refusals of a budget with the same cause may differ in the numbers of their reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalCause {
    /// A cause without a value of its own. The reason says what it is.
    #[default]
    Other,
    /// A webhook has refused or not answered yet.
    Webhook,
    /// As many pods are unavailable as the budget allows.
    MaxUnavailable,
    /// No more pods are available than the budget requires.
    MinAvailable,
    /// There is room in the budget, but another check refuses.
    OtherCheck,
    /// The grants were written by another controller, and the pods were not read since.
    NotCurrent,
    /// The rule set has as many grants as it can store.
    TooManyGrants,
}
