//! The annotation `pod.kusionstack.io/available-conditions`: the consumers that must use a pod before it is available.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

use super::hook_keys::{consumer_key_of, hook_finalizer, hook_of_consumer_key};
use super::keys::AVAILABLE_CONDITIONS;

/// The annotation cannot be read.
#[derive(Debug, Error)]
#[error(
    "annotation {AVAILABLE_CONDITIONS} must be JSON like {{\"expectedFinalizers\":{{\"<Kind>/<namespace>/<name>\":\"<finalizer>\"}}}}: {0}"
)]
pub struct InvalidAvailableConditions(#[from] serde_json::Error);

/// A map from consumer key (`<Kind>/<namespace>/<name>`) to the finalizer of that consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpectedFinalizers {
    by_consumer: Option<BTreeMap<String, String>>,
}

impl ExpectedFinalizers {
    /// Reads the text of the annotation. `null` means that nothing is expected, as for the clients of the protocol.
    ///
    /// # Errors
    /// Fails when the text is not JSON of the expected shape.
    pub fn parse(text: &str) -> Result<Self, InvalidAvailableConditions> {
        // Parse a map first: a derived struct would also accept a JSON list.
        let members: Option<BTreeMap<String, Value>> = serde_json::from_str(text)?;
        let expected =
            members.and_then(|mut members| members.remove("expectedFinalizers")).unwrap_or(Value::Null);
        Ok(ExpectedFinalizers { by_consumer: Option::deserialize(expected)? })
    }

    /// Returns the names of the hooks in the map, whatever their finalizer is.
    pub fn hooks(&self) -> impl Iterator<Item = &str> {
        self.by_consumer.iter().flatten().filter_map(|(consumer, _)| hook_of_consumer_key(consumer))
    }

    /// Returns the key of the consumer that uses `finalizer`.
    #[must_use]
    pub fn consumer(&self, finalizer: &str) -> Option<&str> {
        let mut entries = self.by_consumer.iter().flatten();
        entries.find(|(_, wanted)| *wanted == finalizer).map(|(consumer, _)| consumer.as_str())
    }

    /// Returns the key of a Service that cannot exist, because no Service or namespace can have its name.
    #[must_use]
    pub fn impossible_service(&self) -> Option<&str> {
        let mut consumers = self.by_consumer.iter().flatten().map(|(consumer, _)| consumer.as_str());
        consumers.find(|consumer| {
            service_of(consumer)
                .is_some_and(|(namespace, name)| !is_object_name(namespace) || !is_object_name(name))
        })
    }

    /// Returns the pairs of consumer key and finalizer whose finalizer is not among `finalizers`.
    pub fn missing<'a>(&'a self, finalizers: &'a [String]) -> impl Iterator<Item = (&'a str, &'a str)> {
        // Whoever may patch the pod decides how many there are.
        let present: BTreeSet<&str> = finalizers.iter().map(String::as_str).collect();
        self.by_consumer
            .iter()
            .flatten()
            .map(|(consumer, finalizer)| (consumer.as_str(), finalizer.as_str()))
            .filter(move |(_, wanted)| !present.contains(wanted))
    }
}

/// Removes the consumer keys `consumers` from the annotation `text` and keeps everything else. Returns `None` when
/// there is nothing to remove.
///
/// # Errors
/// Fails when `text` cannot be read.
pub fn without_consumers(
    text: &str,
    consumers: &[&str],
) -> Result<Option<String>, InvalidAvailableConditions> {
    let mut document: Value = serde_json::from_str(text)?;
    let Some(expected) = document.get_mut("expectedFinalizers").and_then(Value::as_object_mut) else {
        return Ok(None);
    };
    let before = expected.len();
    let removed: BTreeSet<&str> = consumers.iter().copied().collect();
    expected.retain(|consumer, _| !removed.contains(consumer.as_str()));
    Ok((expected.len() != before).then(|| document.to_string()))
}

/// Returns the annotation `text` with exactly the hooks `consumers` (names) among the keys of the form
/// `LifecycleHook//<name>`. Everything else in the text is kept. `None` means that the text does not change;
/// `Some(None)` means that nothing is expected and the annotation is to be removed.
///
/// # Errors
/// Fails when `text` cannot be read. Its expectations are unknown then, so Podward does not replace it.
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
    expected.retain(|consumer, _| hook_of_consumer_key(consumer).is_none());
    expected
        .extend(consumers.into_iter().map(|name| (consumer_key_of(name), Value::from(hook_finalizer(name)))));
    if expected == before {
        return Ok(None);
    }
    if !expected.is_empty() {
        members.insert("expectedFinalizers".to_owned(), Value::Object(expected));
    }
    Ok(Some((!members.is_empty()).then(|| Value::Object(members).to_string())))
}

/// Returns namespace and name of the Service that a consumer key (`Service/<namespace>/<name>`) names, or `None` for
/// other keys.
#[must_use]
pub fn service_of(consumer: &str) -> Option<(&str, &str)> {
    let (namespace, name) = consumer.strip_prefix("Service/")?.split_once('/')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains('/')).then_some((namespace, name))
}

/// Returns whether an object or a namespace can have this name: lower case letters, digits, `-` and `.`, with a letter or
/// digit at both ends, and at most 253 characters. No request to the API server can contain some of the other names.
#[must_use]
pub fn is_object_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let (first, last) = (name.bytes().next(), name.bytes().next_back());
    let has_ends = first.is_some_and(is_inner) && last.is_some_and(is_inner);
    has_ends && name.len() <= 253 && name.bytes().all(|byte| is_inner(byte) || matches!(byte, b'-' | b'.'))
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
        let left = without_consumers(text, &["Service/d/a"]).unwrap().unwrap();
        assert_eq!(left, r#"{"expectedFinalizers":{"Slb/d/b":"y"},"other":[1]}"#);
        assert_eq!(without_consumers(&left, &["Service/d/a"]).unwrap(), None);
    }

    #[test]
    fn our_entries_come_and_go_and_the_rest_stays() {
        let named = |name: &str| format!(r#""LifecycleHook//{name}":"{}""#, hook_finalizer(name));
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

    #[test]
    fn names_of_objects() {
        for name in ["web", "0", "a.b-c", &"a".repeat(253)] {
            assert!(is_object_name(name), "{name}");
        }
        for name in
            ["", "my web", "..", ".web", "web-", "Web", "web?a=b", "web%2f", "a/b", "wéb", &"a".repeat(254)]
        {
            assert!(!is_object_name(name), "{name}");
        }
    }
}
