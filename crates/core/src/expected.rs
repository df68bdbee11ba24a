//! The annotation `pod.kusionstack.io/available-conditions`: who must hold a pod again before it is available.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use crate::keys::AVAILABLE_CONDITIONS;

/// The annotation is not what it should be.
#[derive(Debug, Error)]
#[error(
    "annotation {AVAILABLE_CONDITIONS} must be JSON like {{\"expectedFinalizers\":{{\"<Kind>/<namespace>/<name>\":\"<finalizer>\"}}}}: {0}"
)]
pub struct InvalidAvailableConditions(#[from] serde_json::Error);

/// Employer (`<Kind>/<namespace>/<name>`) to the finalizer by which it holds the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpectedFinalizers {
    by_employer: Option<BTreeMap<String, String>>,
}

impl ExpectedFinalizers {
    /// Reads the annotation's text. Like the clients of the protocol, it takes `null` for nothing expected.
    ///
    /// # Errors
    /// When it isn't JSON of the right shape.
    pub fn parse(text: &str) -> Result<Self, InvalidAvailableConditions> {
        // By way of a map: a derived struct would also be read from a list.
        let members: Option<BTreeMap<String, Value>> = serde_json::from_str(text)?;
        let expected =
            members.and_then(|mut members| members.remove("expectedFinalizers")).unwrap_or(Value::Null);
        Ok(ExpectedFinalizers { by_employer: Option::deserialize(expected)? })
    }

    /// Pairs of employer and finalizer that are not among `finalizers`.
    pub fn missing<'a>(&'a self, finalizers: &'a [String]) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.by_employer
            .iter()
            .flatten()
            .map(|(employer, finalizer)| (employer.as_str(), finalizer.as_str()))
            .filter(move |(_, wanted)| !finalizers.iter().any(|present| present == wanted))
    }
}

/// Takes `employers` out of the annotation `text` and leaves all else in it, known or not, as it is.
/// `None` when nothing is to be taken out.
///
/// # Errors
/// When `text` can't be read.
pub fn without_employers(
    text: &str,
    employers: &[&str],
) -> Result<Option<String>, InvalidAvailableConditions> {
    let mut document: Value = serde_json::from_str(text)?;
    let Some(expected) = document.get_mut("expectedFinalizers").and_then(Value::as_object_mut) else {
        return Ok(None);
    };
    let before = expected.len();
    expected.retain(|employer, _| !employers.contains(&employer.as_str()));
    Ok((expected.len() != before).then(|| document.to_string()))
}

/// The namespace and name of a Service that is named as an employer (`Service/<namespace>/<name>`).
#[must_use]
pub fn service_of(employer: &str) -> Option<(&str, &str)> {
    let (namespace, name) = employer.strip_prefix("Service/")?.split_once('/')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains('/')).then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_names_who_is_not_back() {
        let expected = ExpectedFinalizers::parse(
            r#"{"expectedFinalizers":{"Service/default/a":"prot.podopslifecycle.kusionstack.io/1","Service/default/b":"prot.podopslifecycle.kusionstack.io/2"}}"#,
        )
        .unwrap();
        let present = ["prot.podopslifecycle.kusionstack.io/2".to_owned()];
        assert_eq!(
            expected.missing(&present).collect::<Vec<_>>(),
            [("Service/default/a", "prot.podopslifecycle.kusionstack.io/1")]
        );
    }

    #[test]
    fn empty_forms_expect_nothing() {
        for text in ["null", "{}", r#"{"expectedFinalizers":{}}"#, r#"{"expectedFinalizers":null}"#] {
            assert_eq!(ExpectedFinalizers::parse(text).unwrap().missing(&[]).count(), 0, "{text}");
        }
        for text in ["no", "", "[]", "1", r#"{"expectedFinalizers":{"a":1}}"#, r#"{"expectedFinalizers":[]}"#]
        {
            assert!(ExpectedFinalizers::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn taking_out_leaves_the_rest() {
        let text = r#"{"expectedFinalizers":{"Service/d/a":"x","Slb/d/b":"y"},"other":[1]}"#;
        let left = without_employers(text, &["Service/d/a"]).unwrap().unwrap();
        assert_eq!(left, r#"{"expectedFinalizers":{"Slb/d/b":"y"},"other":[1]}"#);
        assert_eq!(without_employers(&left, &["Service/d/a"]).unwrap(), None);
    }

    #[test]
    fn services_are_recognised() {
        assert_eq!(service_of("Service/ns/web"), Some(("ns", "web")));
        assert_eq!(service_of("Slb/ns/web"), None);
        assert_eq!(service_of("Service/web"), None);
    }
}
