//! The annotation `pod.kusionstack.io/available-conditions`: who must hold a pod again before it is available.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::hooks::{employer_of, finalizer_of, hook_of};
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

    /// The hooks that are named, whatever their finalizer.
    pub fn hooks(&self) -> impl Iterator<Item = &str> {
        self.by_employer.iter().flatten().filter_map(|(employer, _)| hook_of(employer))
    }

    /// The employer who holds the pod by `finalizer`.
    #[must_use]
    pub fn employer(&self, finalizer: &str) -> Option<&str> {
        let mut entries = self.by_employer.iter().flatten();
        entries.find(|(_, wanted)| *wanted == finalizer).map(|(employer, _)| employer.as_str())
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

/// The annotation `text` with exactly the hooks `consumers` (names) among the employers that are ours (`LifecycleHook//<name>`).
/// Everything else in it, known or not, stays as it is. `None` when it is so already; `Some(None)` when nothing is left to expect,
/// so that the annotation goes.
///
/// # Errors
/// When `text` can't be read. Nobody can tell what it expects then, so it is not ours to replace.
///
/// ```
/// use podward_core::with_consumers;
///
/// let third_party = r#"{"expectedFinalizers":{"Slb/d/b":"prot.podopslifecycle.kusionstack.io/1"}}"#;
/// let text = with_consumers(Some(third_party), ["mesh"]).unwrap().flatten().unwrap();
/// assert!(text.contains("Slb/d/b") && text.contains("LifecycleHook//mesh"));
/// assert_eq!(with_consumers(Some(&text), ["mesh"]).unwrap(), None);
/// assert_eq!(with_consumers(Some(&text), []).unwrap(), Some(Some(third_party.to_owned())));
/// ```
pub fn with_consumers<'n>(
    text: Option<&str>,
    consumers: impl IntoIterator<Item = &'n str>,
) -> Result<Option<Option<String>>, InvalidAvailableConditions> {
    let mut members: Map<String, Value> = match text {
        Some(text) => {
            ExpectedFinalizers::parse(text)?;
            serde_json::from_str::<Option<Map<String, Value>>>(text)?.unwrap_or_default()
        }
        None => Map::new(),
    };
    let mut expected = match members.remove("expectedFinalizers") {
        Some(Value::Object(expected)) => expected,
        _ => Map::new(),
    };
    let before = expected.clone();
    expected.retain(|employer, _| hook_of(employer).is_none());
    expected.extend(consumers.into_iter().map(|name| (employer_of(name), Value::from(finalizer_of(name)))));
    if expected == before {
        return Ok(None);
    }
    if !expected.is_empty() {
        members.insert("expectedFinalizers".to_owned(), Value::Object(expected));
    }
    Ok(Some((!members.is_empty()).then(|| Value::Object(members).to_string())))
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
    fn our_entries_come_and_go_and_the_rest_stays() {
        let named = |name: &str| format!(r#""LifecycleHook//{name}":"{}""#, finalizer_of(name));
        let with = |text: Option<&str>, names: &[&str]| with_consumers(text, names.iter().copied()).unwrap();
        let made = format!(r#"{{"expectedFinalizers":{{{}}}}}"#, named("a"));
        for nothing in [None, Some("null"), Some("{}"), Some(r#"{"expectedFinalizers":null}"#)] {
            assert_eq!(with(nothing, &["a"]), Some(Some(made.clone())), "{nothing:?}");
            assert_eq!(with(nothing, &[]), None, "{nothing:?}");
        }
        assert_eq!(with(Some(&made), &["a"]), None);
        assert_eq!(with(Some(&made), &[]), Some(None), "nothing is left");
        let other = format!(r#"{{"expectedFinalizers":{{{},"Slb/d/b":"y"}},"more":[1]}}"#, named("b"));
        assert_eq!(
            with(Some(r#"{"expectedFinalizers":{"LifecycleHook//a":"x","Slb/d/b":"y"},"more":[1]}"#), &["b"]),
            Some(Some(other))
        );
        let wrong = r#"{"expectedFinalizers":{"LifecycleHook//a":"wrong"}}"#;
        assert_eq!(with(Some(wrong), &["a"]), Some(Some(made)), "a wrong finalizer is corrected");
        for text in ["no", "[]", r#"{"expectedFinalizers":{"a":1}}"#] {
            assert!(with_consumers(Some(text), ["a"]).is_err(), "{text}");
        }
    }

    #[test]
    fn services_are_recognised() {
        assert_eq!(service_of("Service/ns/web"), Some(("ns", "web")));
        assert_eq!(service_of("Slb/ns/web"), None);
        assert_eq!(service_of("Service/web"), None);
    }
}
