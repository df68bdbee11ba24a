//! Evidence: what an answer is based on.

/// The strength of evidence, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EvidenceLevel {
    /// Observed in the data plane.
    Proven,
    /// A known upper bound has passed.
    Bounded,
    /// Nothing was observed.
    Assumed,
    /// A deadline policy let the pod continue.
    TimedOut,
}

impl EvidenceLevel {
    /// All levels, the strongest first.
    pub const ALL: [EvidenceLevel; 4] =
        [EvidenceLevel::Proven, EvidenceLevel::Bounded, EvidenceLevel::Assumed, EvidenceLevel::TimedOut];

    /// Returns the name as in `podward.v1.EvidenceLevel`, without its prefix.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            EvidenceLevel::Proven => "PROVEN",
            EvidenceLevel::Bounded => "BOUNDED",
            EvidenceLevel::Assumed => "ASSUMED",
            EvidenceLevel::TimedOut => "TIMED_OUT",
        }
    }
}

/// The evidence of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The strength.
    pub level: EvidenceLevel,
    /// What was observed.
    pub detail: String,
}
