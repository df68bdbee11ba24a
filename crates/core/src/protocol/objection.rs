//! Objections of checks to a result.

/// The effect of a check that refuses a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PostCheckRejection {
    /// The operation waits until the check accepts the result.
    #[default]
    Hold,
    /// As `Hold`, and the operator is told that the result is refused.
    Rollback,
}

impl PostCheckRejection {
    /// Returns the text in resources and annotations.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            PostCheckRejection::Hold => "Hold",
            PostCheckRejection::Rollback => "Rollback",
        }
    }

    /// Reads the text in resources and annotations.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [PostCheckRejection::Hold, PostCheckRejection::Rollback].into_iter().find(|it| it.as_str() == text)
    }
}

/// A check that does not accept a result and whose refusal is reported to the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// The name of the check: [`name_of_hook`](Self::name_of_hook) or [`name_of_rule`](Self::name_of_rule).
    pub by: String,
    /// The reason of the refusal. `None` when the check has not answered: an earlier refusal then stands.
    pub reason: Option<String>,
}

impl Objection {
    /// Returns the name of a hook: `hook <name>`.
    #[must_use]
    pub fn name_of_hook(hook: &str) -> String {
        format!("hook {hook}")
    }

    /// Returns the name of a rule: `rule <object>/<rule>`.
    #[must_use]
    pub fn name_of_rule(object: &str, rule: &str) -> String {
        format!("{RULE_PREFIX}{object}/{rule}")
    }

    /// Returns whether the check refuses the result.
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.reason.is_some()
    }
}

pub(crate) const RULE_PREFIX: &str = "rule ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_read_back() {
        for policy in [PostCheckRejection::Hold, PostCheckRejection::Rollback] {
            assert_eq!(PostCheckRejection::parse(policy.as_str()), Some(policy));
        }
        assert_eq!(PostCheckRejection::parse("rollback"), None);
    }
}
