//! Label selectors, as in Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use thiserror::Error;

/// A selector is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidSelector {
    /// The operator is unknown.
    #[error("operator {operator:?} of key {key:?} must be In, NotIn, Exists or DoesNotExist")]
    Operator {
        /// The key of the requirement.
        key: String,
        /// The operator.
        operator: String,
    },
    /// In or NotIn has no values, or Exists or DoesNotExist has some.
    #[error("operator {operator} of key {key:?} needs {}", if *wants_values { "at least one value" } else { "no values" })]
    Values {
        /// The key of the requirement.
        key: String,
        /// The operator.
        operator: String,
        /// True if values are missing; false if there must be none.
        wants_values: bool,
    },
    /// The requirements exclude each other.
    #[error("nothing can match: {0}")]
    MatchesNothing(String),
}

/// A compiled selector. All requirements must match. An empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<(String, Requirement)>,
}

/// A label that every match of a selector has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor<'a> {
    /// The key.
    pub key: &'a str,
    /// The allowed values; `None` allows any value.
    pub values: Option<&'a BTreeSet<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
}

impl Selector {
    /// Returns the selector that matches everything.
    #[must_use]
    pub fn everything() -> Self {
        Self::default()
    }

    /// Compiles `matchLabels` and `matchExpressions` (key, operator, values).
    ///
    /// # Errors
    /// Fails when an expression is malformed, or no labels can match.
    pub fn new(
        equal: BTreeMap<String, String>,
        expressions: impl IntoIterator<Item = (String, String, Vec<String>)>,
    ) -> Result<Self, InvalidSelector> {
        let mut requirements: Vec<(String, Requirement)> =
            equal.into_iter().map(|(key, value)| (key, Requirement::In(BTreeSet::from([value])))).collect();
        for (key, operator, values) in expressions {
            requirements.push((key.clone(), requirement(key, operator, values)?));
        }
        check(&requirements)?;
        Ok(Self { requirements })
    }

    /// Returns whether `labels` match.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|(key, requirement)| {
            let value = labels.get(key);
            match requirement {
                Requirement::In(values) => value.is_some_and(|value| values.contains(value)),
                Requirement::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Requirement::Exists => value.is_some(),
                Requirement::DoesNotExist => value.is_none(),
            }
        })
    }

    /// Returns the labels that every match has, in the order of the requirements, so that selectors can be indexed by
    /// them. Empty for a selector that only excludes labels, or has no requirement.
    pub fn anchors(&self) -> impl Iterator<Item = Anchor<'_>> {
        self.requirements.iter().filter_map(|(key, requirement)| match requirement {
            Requirement::In(values) => Some(Anchor { key, values: Some(values) }),
            Requirement::Exists => Some(Anchor { key, values: None }),
            Requirement::NotIn(_) | Requirement::DoesNotExist => None,
        })
    }
}

/// What the requirements on one key demand together.
#[derive(Default)]
struct KeyRequirements<'a> {
    must: bool,
    must_not: bool,
    /// The values that all In allow; `None` if there is no In.
    allowed: Option<BTreeSet<&'a String>>,
    excluded: BTreeSet<&'a String>,
}

impl<'a> KeyRequirements<'a> {
    fn add(&mut self, requirement: &'a Requirement) {
        match requirement {
            Requirement::In(values) => {
                self.must = true;
                let values: BTreeSet<&String> = values.iter().collect();
                self.allowed = Some(match self.allowed.take() {
                    Some(before) => before.intersection(&values).copied().collect(),
                    None => values,
                });
            }
            Requirement::NotIn(values) => self.excluded.extend(values),
            Requirement::Exists => self.must = true,
            Requirement::DoesNotExist => self.must_not = true,
        }
    }
}

/// Checks that labels can meet `requirements`. It reads each of them once: a selector may be that of another tenant.
fn check(requirements: &[(String, Requirement)]) -> Result<(), InvalidSelector> {
    let mut keys: BTreeMap<&String, KeyRequirements<'_>> = BTreeMap::new();
    for (key, requirement) in requirements {
        keys.entry(key).or_default().add(requirement);
    }
    for (key, KeyRequirements { must, must_not, allowed, excluded }) in keys {
        if must && must_not {
            let text = format!("label {key} would have to be there and not be there");
            return Err(InvalidSelector::MatchesNothing(text));
        }
        if allowed.is_some_and(|allowed| allowed.iter().all(|value| excluded.contains(*value))) {
            let text = format!("no value of label {key} meets all requirements on it");
            return Err(InvalidSelector::MatchesNothing(text));
        }
    }
    Ok(())
}

/// Formats the selector as Kubernetes does: `app=web,tier in (back,front),!old`.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (key, requirement)) in self.requirements.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            let list = |values: &BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>().join(",");
            match requirement {
                Requirement::In(values) if values.len() == 1 => write!(f, "{comma}{key}={}", list(values))?,
                Requirement::In(values) => write!(f, "{comma}{key} in ({})", list(values))?,
                Requirement::NotIn(values) => write!(f, "{comma}{key} notin ({})", list(values))?,
                Requirement::Exists => write!(f, "{comma}{key}")?,
                Requirement::DoesNotExist => write!(f, "{comma}!{key}")?,
            }
        }
        Ok(())
    }
}

fn requirement(key: String, operator: String, values: Vec<String>) -> Result<Requirement, InvalidSelector> {
    let wants_values = match operator.as_str() {
        "In" | "NotIn" => true,
        "Exists" | "DoesNotExist" => false,
        _ => return Err(InvalidSelector::Operator { key, operator }),
    };
    if wants_values == values.is_empty() {
        return Err(InvalidSelector::Values { key, operator, wants_values });
    }
    let values = values.into_iter().collect();
    Ok(match operator.as_str() {
        "In" => Requirement::In(values),
        "NotIn" => Requirement::NotIn(values),
        "Exists" => Requirement::Exists,
        _ => Requirement::DoesNotExist,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(expressions: &[(&str, &str, &[&str])]) -> Result<Selector, InvalidSelector> {
        Selector::new(
            BTreeMap::new(),
            expressions.iter().map(|(key, operator, values)| {
                let values = values.iter().map(|value| (*value).to_owned()).collect();
                ((*key).to_owned(), (*operator).to_owned(), values)
            }),
        )
    }

    fn matches(expressions: &[(&str, &str, &[&str])], labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        selector(expressions).unwrap().matches(&labels)
    }

    #[test]
    fn operators_mean_what_they_mean_in_kubernetes() {
        assert!(matches(&[], &[]));
        assert!(matches(&[("a", "In", &["1", "2"])], &[("a", "2")]));
        assert!(!matches(&[("a", "In", &["1", "2"])], &[("a", "3")]));
        assert!(!matches(&[("a", "In", &["1"])], &[]));
        assert!(matches(&[("a", "NotIn", &["1"])], &[]));
        assert!(!matches(&[("a", "NotIn", &["1"])], &[("a", "1")]));
        assert!(matches(&[("a", "Exists", &[])], &[("a", "")]));
        assert!(!matches(&[("a", "DoesNotExist", &[])], &[("a", "")]));
        assert!(!matches(&[("a", "Exists", &[]), ("b", "Exists", &[])], &[("a", "")]));
    }

    #[test]
    fn its_text_is_that_of_kubernetes() {
        let all = [
            ("a", "In", ["1"].as_slice()),
            ("b", "In", &["2", "1"]),
            ("c", "NotIn", &["3"]),
            ("d", "Exists", &[]),
            ("e", "DoesNotExist", &[]),
        ];
        assert_eq!(selector(&all).unwrap().to_string(), "a=1,b in (1,2),c notin (3),d,!e");
        assert_eq!(Selector::everything().to_string(), "");
    }

    #[test]
    fn what_can_match_nothing_is_refused() {
        for contradiction in [
            &[("a", "In", ["1"].as_slice()), ("a", "NotIn", &["1"])][..],
            &[("a", "In", &["1"]), ("a", "In", &["2"])],
            &[("a", "Exists", &[]), ("a", "DoesNotExist", &[])],
            &[("a", "In", &["1"]), ("a", "DoesNotExist", &[])],
        ] {
            assert!(
                matches!(selector(contradiction), Err(InvalidSelector::MatchesNothing(_))),
                "{contradiction:?}"
            );
        }
        assert!(selector(&[("a", "In", &["1", "2"]), ("a", "NotIn", &["1"])]).is_ok());
    }

    #[test]
    fn a_contradiction_among_many_keys_is_found() {
        let absent = |key: usize| (format!("key-{key}"), "DoesNotExist".to_owned(), Vec::new());
        let compile = |last| Selector::new(BTreeMap::new(), (0..10_000).map(absent).chain([last]));
        let labels = BTreeMap::from([("key-9999".to_owned(), String::new())]);
        assert!(!compile(absent(9_999)).unwrap().matches(&labels));
        let error = compile(("key-9999".to_owned(), "Exists".to_owned(), Vec::new())).unwrap_err();
        assert!(error.to_string().contains("label key-9999 would have"), "{error}");
    }

    #[test]
    fn malformed_expressions_are_refused() {
        assert!(selector(&[("a", "in", &["1"])]).is_err());
        assert!(selector(&[("a", "In", &[])]).is_err());
        assert!(selector(&[("a", "Exists", &["1"])]).is_err());
    }
}
