//! What Nacos sends.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::detail::excerpt;
use crate::limits::{Bounded, Entry, Exceeded, Scalar, Texts};

/// An instance, in any of the lists.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredInstance {
    pub(super) ip: String,
    pub(super) port: u16,
    #[serde(default)]
    pub(super) cluster_name: String,
    #[serde(default = "one")]
    pub(super) weight: f64,
    #[serde(default = "yes")]
    pub(super) healthy: bool,
    #[serde(default = "yes")]
    pub(super) enabled: bool,
    #[serde(default = "yes")]
    pub(super) ephemeral: bool,
    #[serde(default)]
    pub(super) metadata: Texts,
}

impl Entry for StoredInstance {
    fn texts(&self) -> Vec<&str> {
        vec![&self.ip, &self.cluster_name]
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata.0
    }
}

fn one() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

/// A list of instances, in any form. Version 2 and 3 wrap it.
#[derive(Debug)]
enum List {
    Instances(Bounded<StoredInstance>),
    Fields(Box<Fields>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Fields {
    /// What wraps a list has these fields.
    code: Option<i64>,
    message: Scalar,
    data: Option<List>,
    /// Lists that clients read, and those of Nacos 3.0.
    hosts: Option<Bounded<StoredInstance>>,
    /// The catalog of version 1.
    list: Option<Bounded<StoredInstance>>,
    /// The catalog of version 2. An empty one has no instances.
    instances: Option<Bounded<StoredInstance>>,
    count: Option<usize>,
}

impl<'de> Deserialize<'de> for List {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor)
    }
}

struct ListVisitor;

impl<'de> Visitor<'de> for ListVisitor {
    type Value = List;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of instances, or an object that contains it")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<List, A::Error> {
        Bounded::deserialize(SeqAccessDeserializer::new(list)).map(List::Instances)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<List, A::Error> {
        Fields::deserialize(MapAccessDeserializer::new(fields)).map(|fields| List::Fields(Box::new(fields)))
    }
}

impl List {
    /// Returns the instances. `None` if it is not a list.
    fn instances(self) -> Option<Result<Vec<StoredInstance>, Problem>> {
        let Fields { hosts, list, instances, count, .. } = match self {
            List::Instances(found) => return Some(Ok(found.0)),
            List::Fields(fields) => *fields,
        };
        if let Some(found) = hosts.or(list) {
            return Some(Ok(found.0));
        }
        let (found, count) = (instances.unwrap_or_default().0, count?);
        Some(match found.len() == count {
            true => Ok(found),
            false => Err(Problem::new(format!("the list has {} instances instead of {count}", found.len()))),
        })
    }
}

/// What is wrong with a response: a text for the user, and one for the log only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: String,
    pub(super) detail: Option<String>,
}

impl Problem {
    fn new(reason: String) -> Self {
        Self { reason, detail: None }
    }

    /// `detail` is text of the server.
    fn hiding(reason: &str, detail: String) -> Self {
        Self { reason: format!("{reason}; the log of the bridge has the details"), detail: Some(detail) }
    }
}

/// A response without content.
#[derive(Debug, Deserialize)]
struct Outcome {
    code: i64,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    data: Scalar,
}

/// The response to a login.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Login {
    pub(super) access_token: String,
    /// In seconds.
    pub(super) token_ttl: u64,
}

/// Reads a list.
///
/// # Errors
/// Fails if the body is something else, a wrapped error, or too large a list.
pub(super) fn instances(body: &[u8]) -> Result<Vec<StoredInstance>, Problem> {
    let not_a_list = |detail: String| {
        Problem::hiding("the response is not as expected: not a list of instances as Nacos sends it", detail)
    };
    let list = match serde_json::from_slice(body) {
        Ok(list) => list,
        Err(error) => {
            if let Some(exceeded) = Exceeded::of(&error.to_string()) {
                return Err(Problem::new(exceeded.to_string()));
            }
            outcome(body)?;
            return Err(not_a_list(format!("{error}: {}", excerpt(body))));
        }
    };
    let found = match list {
        List::Fields(fields) if fields.code.is_some_and(|code| code != 0) => {
            let Scalar::Text(message) = fields.message else {
                return Err(refused(fields.code, String::new()));
            };
            return Err(refused(fields.code, message));
        }
        List::Fields(fields) if fields.code.is_some() => fields.data.and_then(List::instances),
        list => list.instances(),
    };
    found.unwrap_or_else(|| Err(not_a_list(excerpt(body))))
}

/// Reads the response to a change: `ok`, or a wrapped result.
///
/// # Errors
/// Fails if it is a wrapped error.
pub(super) fn outcome(body: &[u8]) -> Result<(), Problem> {
    match serde_json::from_slice::<Outcome>(body) {
        Ok(Outcome { code, message, data }) if code != 0 => {
            let data = if let Scalar::Text(text) = data { text } else { String::new() };
            Err(refused(Some(code), format!("{:?} {data:?}", message.unwrap_or_default())))
        }
        _ => Ok(()),
    }
}

/// Returns what follows from a code (`ErrorCode.java` of Nacos). The message is for the log.
fn refused(code: Option<i64>, message: String) -> Problem {
    let code = code.unwrap_or_default();
    let meaning = match code {
        10_000 | 20_002 => "a parameter is missing or invalid",
        10_001 => "access is denied; check the credentials and their permissions",
        20_004 | 21_003 | 21_008 => "there is no such service or instance",
        20_005 => "somebody else changes it at the same time",
        21_000 => "the name of the service is invalid",
        21_001 => "the weight is invalid",
        21_002 => "the metadata are invalid",
        21_004 => "the instance is invalid",
        22_000 | 22_001 => "the namespace is invalid, or does not exist",
        30_000 => "the server has failed",
        _ => "it does not accept the call",
    };
    // Nobody else's code is shown.
    let code = match (10_000..60_000).contains(&code) {
        true => code.to_string(),
        false => "that is unknown".to_owned(),
    };
    Problem::hiding(&format!("Nacos answers with code {code}: {meaning}"), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_all_versions_are_read() {
        let one =
            r#"{"ip":"10.0.0.7","port":80,"clusterName":"DEFAULT","enabled":false,"metadata":{"a":"b"}}"#;
        for body in [
            format!(r#"{{"name":"g@@web","hosts":[{one}],"count":7}}"#),
            format!(r#"{{"count":1,"list":[{one}]}}"#),
            format!(r#"{{"code":0,"message":"success","data":{{"name":"web","hosts":[{one}]}}}}"#),
            format!(r#"{{"code":0,"message":"success","data":{{"count":1,"instances":[{one}]}}}}"#),
            format!(r#"{{"code":0,"message":"success","data":[{one}]}}"#),
        ] {
            let found = instances(body.as_bytes());
            assert!(found.as_ref().is_ok_and(|all| all.len() == 1 && !all[0].enabled), "{body}: {found:?}");
        }
        assert_eq!(instances(br#"{"code":0,"data":{"count":0}}"#), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_list_is_not_an_empty_one() {
        for body in [
            "",
            "{}",
            "null",
            "<html></html>",
            r#"{"code":0,"data":null}"#,
            r#"{"code":0,"data":{}}"#,
            r#"{"code":30000,"message":"server error","data":null}"#,
            r#"{"code":0,"data":{"count":3}}"#,
            r#"{"hosts":[{"ip":"10.0.0.7"}]}"#,
        ] {
            assert!(instances(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn changes_are_answered_with_ok_or_a_result() {
        assert_eq!(outcome(b"ok"), Ok(()));
        assert_eq!(outcome(br#"{"code":0,"message":"success","data":"ok"}"#), Ok(()));
        let error = outcome(br#"{"code":22001,"message":"m","data":"weight"}"#);
        let error = error.unwrap_err();
        assert!(error.reason.starts_with("Nacos answers with code 22001: the namespace"), "{error:?}");
        assert_eq!(error.detail.as_deref(), Some(r#""m" "weight""#));
    }
}
