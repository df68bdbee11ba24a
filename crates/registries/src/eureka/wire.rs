//! The JSON of Eureka.
//!
//! Source: <https://github.com/Netflix/eureka/wiki/Eureka-REST-operations>, and the answers of Eureka 1.10.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits::{Bounded, Entry, Names, Scalar, Texts, one_or_many};

/// The status of an instance that is in service.
pub(super) const UP: &str = "UP";
/// The status of an instance whose application is to report it again.
pub(super) const UNKNOWN: &str = "UNKNOWN";
/// The status of an instance that was taken out of service.
pub(super) const OUT_OF_SERVICE: &str = "OUT_OF_SERVICE";

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
    /// One that is there once may be without a list.
    #[serde(default)]
    pub(super) application: Names<ApplicationName>,
}

/// An application, without its instances.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct ApplicationName {
    pub(super) name: String,
}

/// The answer of `apps/<name>`.
#[derive(Debug, Deserialize)]
pub(super) struct OneApplication {
    pub(super) application: Application,
}

#[derive(Debug, Deserialize)]
pub(super) struct Application {
    /// One that is there once may be without a list.
    #[serde(default, deserialize_with = "one_or_many")]
    pub(super) instance: Bounded<StoredInstance>,
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
    /// The status that others have set, which lasts when the application reports another one.
    #[serde(default)]
    overridden_status: String,
    /// As some versions of Eureka write it.
    #[serde(default, rename = "overriddenstatus")]
    overridden_status_in_lower_case: String,
    #[serde(default)]
    pub(super) port: Option<StoredPort>,
    #[serde(default)]
    pub(super) secure_port: Option<StoredPort>,
    #[serde(default)]
    pub(super) metadata: Texts,
}

impl StoredInstance {
    /// Returns whether it stays out of service when its application reports that it is up.
    pub(super) fn is_held_out(&self) -> bool {
        let all = [&self.status, &self.overridden_status, &self.overridden_status_in_lower_case];
        self.status != UP && all.into_iter().any(|status| status == OUT_OF_SERVICE)
    }

    /// Returns whether its application has reported that it is not ready since it was taken out of service.
    pub(super) fn is_not_ready(&self) -> bool {
        ["DOWN", "STARTING"].contains(&self.status.as_str())
    }
}

impl Entry for StoredInstance {
    fn texts(&self) -> Vec<&str> {
        let Self { instance_id, host_name, ip_addr, status, .. } = self;
        let (overridden, other) = (&self.overridden_status, &self.overridden_status_in_lower_case);
        vec![instance_id.as_deref().unwrap_or_default(), host_name, ip_addr, status, overridden, other]
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata.0
    }
}

/// A number may be a text, and a Boolean value usually is.
#[derive(Debug, Deserialize)]
pub(super) struct StoredPort {
    #[serde(rename = "$", default)]
    number: Scalar,
    #[serde(rename = "@enabled", default)]
    enabled: Scalar,
}

impl StoredPort {
    /// Returns the port if it is enabled.
    pub(super) fn get(&self) -> Option<u16> {
        let is_enabled = match &self.enabled {
            Scalar::Bool(is_enabled) => *is_enabled,
            Scalar::Text(text) => text == "true",
            _ => false,
        };
        let number = match &self.number {
            Scalar::Number(number) => u16::try_from(*number).ok(),
            Scalar::Text(text) => text.parse().ok(),
            _ => None,
        };
        number.filter(|_| is_enabled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_that_is_down_may_return_unless_it_was_taken_out() {
        let held_out = |more: &str| {
            let stored: StoredInstance = serde_json::from_str(&format!("{{{more}}}")).unwrap();
            stored.is_held_out()
        };
        assert!(held_out(r#""status": "OUT_OF_SERVICE""#));
        assert!(!held_out(r#""status": "DOWN", "overriddenStatus": "UNKNOWN""#));
        assert!(held_out(r#""status": "DOWN", "overriddenStatus": "OUT_OF_SERVICE""#));
        assert!(held_out(r#""status": "DOWN", "overriddenstatus": "OUT_OF_SERVICE""#));
        assert!(!held_out(r#""status": "UP", "overriddenstatus": "OUT_OF_SERVICE""#));
    }

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
            let names: Vec<_> = all.applications.application.0.iter().map(|it| it.name.as_str()).collect();
            assert_eq!(names, ["WEB"], "{text}");
        }
        for instances in [instance.to_owned(), format!("[{instance}]")] {
            let text = format!(r#"{{"application": {{"name": "WEB", "instance": {instances}}}}}"#);
            let one: OneApplication = serde_json::from_str(&text).unwrap();
            let port = one.application.instance.0[0].port.as_ref().and_then(StoredPort::get);
            assert_eq!(port, Some(8080), "{text}");
        }
        let none: AllApplications = serde_json::from_str(r#"{"applications": {"application": []}}"#).unwrap();
        assert!(none.applications.application.0.is_empty());
        let port = |text| serde_json::from_str::<StoredPort>(text).unwrap().get();
        assert_eq!(port(r#"{"$": 8080, "@enabled": true}"#), Some(8080));
        for disabled in [r#"{"$": 443, "@enabled": "false"}"#, r#"{"$": 99999, "@enabled": "true"}"#, "{}"] {
            assert_eq!(port(disabled), None, "{disabled}");
        }
    }
}
