//! What Nacos sends.

use std::collections::BTreeMap;

use serde::Deserialize;

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
    pub(super) metadata: Option<BTreeMap<String, Option<String>>>,
}

fn one() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

/// A list of instances. Version 2 and 3 wrap it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum List {
    Instances(Vec<StoredInstance>),
    /// Lists that clients read, and those of Nacos 3.0.
    Hosts {
        hosts: Vec<StoredInstance>,
    },
    /// The catalog of version 1.
    Page {
        list: Vec<StoredInstance>,
    },
    /// The catalog of version 2. An empty one has no instances.
    Catalog {
        #[serde(default)]
        instances: Vec<StoredInstance>,
        count: usize,
    },
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ListResponse {
    Wrapped { code: i64, message: Option<String>, data: Option<List> },
    Plain(List),
}

/// A response without content.
#[derive(Debug, Deserialize)]
struct Outcome {
    code: i64,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    data: Option<serde_json::Value>,
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
/// Fails with the reason if the body is something else, or a wrapped error.
pub(super) fn instances(body: &[u8]) -> Result<Vec<StoredInstance>, String> {
    let Ok(response) = serde_json::from_slice(body) else {
        outcome(body)?;
        return Err("the response is not a list of instances as Nacos sends it".to_owned());
    };
    let list = match response {
        ListResponse::Wrapped { code: 0, data: Some(list), .. } | ListResponse::Plain(list) => list,
        ListResponse::Wrapped { code, message, .. } => return Err(reason(code, message, None)),
    };
    match list {
        List::Instances(found) | List::Hosts { hosts: found } | List::Page { list: found } => Ok(found),
        List::Catalog { instances, count } if instances.len() == count => Ok(instances),
        List::Catalog { instances, count } => {
            Err(format!("the list has {} instances instead of {count}", instances.len()))
        }
    }
}

/// Reads the response to a change: `ok`, or a wrapped result.
///
/// # Errors
/// Fails with the reason if it is a wrapped error.
pub(super) fn outcome(body: &[u8]) -> Result<(), String> {
    match serde_json::from_slice::<Outcome>(body) {
        Ok(Outcome { code, message, data }) if code != 0 => Err(reason(code, message, data)),
        _ => Ok(()),
    }
}

fn reason(code: i64, message: Option<String>, data: Option<serde_json::Value>) -> String {
    let detail = data.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default();
    format!("Nacos answers with code {code}: {:?} {detail:?}", message.unwrap_or_default())
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
        assert_eq!(error, Err(r#"Nacos answers with code 22001: "m" "weight""#.to_owned()));
    }
}
