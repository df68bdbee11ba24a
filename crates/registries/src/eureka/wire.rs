//! The JSON of Eureka.
//!
//! Source: <https://github.com/Netflix/eureka/wiki/Eureka-REST-operations>, and the answers of Eureka 1.10.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Registers an instance.
#[derive(Debug, Serialize)]
pub(super) struct Registration<'a> {
    pub(super) instance: RegisteredInstance<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RegisteredInstance<'a> {
    pub(super) instance_id: &'a str,
    pub(super) host_name: &'a str,
    pub(super) app: &'a str,
    pub(super) ip_addr: &'a str,
    pub(super) vip_address: &'a str,
    pub(super) secure_vip_address: &'a str,
    pub(super) status: &'static str,
    pub(super) port: RegisteredPort,
    pub(super) data_center_info: DataCenter,
    pub(super) lease_info: Lease,
    pub(super) metadata: &'a BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
pub(super) struct RegisteredPort {
    #[serde(rename = "$")]
    pub(super) number: u16,
    #[serde(rename = "@enabled")]
    pub(super) enabled: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct DataCenter {
    #[serde(rename = "@class")]
    pub(super) class: &'static str,
    pub(super) name: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Lease {
    pub(super) renewal_interval_in_secs: u64,
    pub(super) duration_in_secs: u64,
}

/// The answer of `apps`.
#[derive(Debug, Deserialize)]
pub(super) struct AllApplications {
    pub(super) applications: Applications,
}

#[derive(Debug, Deserialize)]
pub(super) struct Applications {
    #[serde(default, deserialize_with = "one_or_many")]
    pub(super) application: Vec<Application>,
}

/// The answer of `apps/<name>`.
#[derive(Debug, Deserialize)]
pub(super) struct OneApplication {
    pub(super) application: Application,
}

#[derive(Debug, Deserialize)]
pub(super) struct Application {
    pub(super) name: String,
    #[serde(default, deserialize_with = "one_or_many")]
    pub(super) instance: Vec<StoredInstance>,
}

/// The answer of `apps/<name>/<id>`.
#[derive(Debug, Deserialize)]
pub(super) struct OneInstance {
    pub(super) instance: StoredInstance,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredInstance {
    #[serde(default)]
    pub(super) instance_id: Option<String>,
    #[serde(default)]
    pub(super) host_name: String,
    #[serde(default)]
    pub(super) ip_addr: String,
    #[serde(default)]
    pub(super) status: String,
    #[serde(default)]
    pub(super) port: Option<StoredPort>,
    #[serde(default)]
    pub(super) secure_port: Option<StoredPort>,
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, Value>,
}

/// A number may be a text, and a Boolean value usually is.
#[derive(Debug, Deserialize)]
pub(super) struct StoredPort {
    #[serde(rename = "$", default)]
    number: Value,
    #[serde(rename = "@enabled", default)]
    enabled: Value,
}

impl StoredPort {
    /// Returns the port if it is enabled.
    pub(super) fn get(&self) -> Option<u16> {
        let is_enabled = self.enabled == true || self.enabled == "true";
        let number = match &self.number {
            Value::Number(number) => number.as_u64().and_then(|number| u16::try_from(number).ok()),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        number.filter(|_| is_enabled)
    }
}

/// An element that is there once may be an object instead of an array.
fn one_or_many<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany<T> {
        Many(Vec<T>),
        One(Box<T>),
    }
    Ok(match Option::<OneOrMany<T>>::deserialize(deserializer)? {
        None => Vec::new(),
        Some(OneOrMany::One(one)) => vec![*one],
        Some(OneOrMany::Many(many)) => many,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_all_versions_are_understood() {
        let instance = r#"{"hostName": "h", "ipAddr": "10.0.0.7", "status": "UP", "port": {"@enabled": "true", "$": "8080"}}"#;
        let one =
            format!(r#"{{"applications": {{"application": {{"name": "WEB", "instance": {instance}}}}}}}"#);
        let many = format!(
            r#"{{"applications": {{"application": [{{"name": "WEB", "instance": [{instance}]}}]}}}}"#
        );
        for text in [one, many] {
            let all: AllApplications = serde_json::from_str(&text).unwrap();
            let found = &all.applications.application[0];
            let port = found.instance[0].port.as_ref().and_then(StoredPort::get);
            assert_eq!((found.name.as_str(), port), ("WEB", Some(8080)), "{text}");
        }
        let none: AllApplications = serde_json::from_str(r#"{"applications": {"application": []}}"#).unwrap();
        assert!(none.applications.application.is_empty());
        let port = |text| serde_json::from_str::<StoredPort>(text).unwrap().get();
        assert_eq!(port(r#"{"$": 8080, "@enabled": true}"#), Some(8080));
        for disabled in [r#"{"$": 443, "@enabled": "false"}"#, r#"{"$": 99999, "@enabled": "true"}"#, "{}"] {
            assert_eq!(port(disabled), None, "{disabled}");
        }
    }
}
