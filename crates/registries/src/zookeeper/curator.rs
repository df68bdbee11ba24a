//! Instances in the JSON of Curator's service discovery, as Spring Cloud and Dubbo 3 write it.
//!
//! Whether an instance is in service is said in three places, and each kind of client reads another one:
//! - `enabled`: Curator's `ServiceProvider` (`ServiceProviderImpl`). The default serializer does not write it.
//! - `payload.metadata.instance_status`: Spring's load balancer (`ZookeeperServiceInstanceListSupplier`). Spring's
//!   `DiscoveryClient` returns all instances, for applications that choose themselves.
//! - `payload.metadata.dubbo.metadata.revision`: Dubbo's consumers of applications ignore instances whose revision is `0`
//!   (`ServiceInstancesChangedListener`). They also read `disabled`, but then they keep a closed connection in use until the
//!   instance changes otherwise (seen with 3.2.16). The revision is kept beside it for the way back.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::instance::{Instance, InstanceVersion};
use crate::listed::ip_of;

use super::packets::Stat;

/// The key in the metadata that says to Spring whether an instance is in service.
pub(super) const STATUS: &str = "instance_status";
const UP: &str = "UP";
const OUT_OF_SERVICE: &str = "OUT_OF_SERVICE";
/// The key with the status of an instance that is out of service, if it was not ready before.
const KEPT_STATUS: &str = "podward-status";
/// The classes of the payload.
const SPRING: &str = "org.springframework.cloud.zookeeper.discovery.ZookeeperInstance";
const DUBBO: &str = "org.apache.dubbo.registry.zookeeper.ZookeeperInstance";
/// The key in the metadata with the revision of what an application of Dubbo offers, the value for nothing, and the key with
/// the revision of an instance that is out of service.
const REVISION: &str = "dubbo.metadata.revision";
const NOTHING: &str = "0";
const KEPT_REVISION: &str = "podward-revision";

/// Returns the JSON of an instance. `registered` is the time of the registration, in milliseconds since 1970.
pub(super) fn encode(service: &str, instance: &Instance, registered: u64) -> Vec<u8> {
    let mut metadata = instance.metadata.clone();
    let status = if instance.in_service { UP } else { OUT_OF_SERVICE };
    metadata.insert(STATUS.to_owned(), status.to_owned());
    let part = |value: &str, variable: bool| json!({"value": value, "variable": variable});
    let mut value = json!({
        "name": service,
        "id": instance.id,
        "address": instance.host,
        "port": instance.port,
        "sslPort": null,
        "payload": {"@class": SPRING, "id": instance.id, "name": service, "metadata": metadata},
        "registrationTimeUTC": registered,
        "serviceType": "PERMANENT",
        // Spring makes a URL of it.
        "uriSpec": {"parts": [
            part("scheme", true), part("://", false), part("address", true), part(":", false), part("port", true),
        ]},
    });
    if !instance.in_service
        && let Some(fields) = value.as_object_mut()
    {
        fields.insert("enabled".to_owned(), Value::Bool(false));
    }
    value.to_string().into_bytes()
}

/// Returns the instance of a node. `None` if it is not an instance, or has no address and port.
pub(super) fn decode(id: &str, data: &[u8], stat: &Stat) -> Option<Instance> {
    let value: Value = serde_json::from_slice(data).ok()?;
    let port = ["port", "sslPort"].into_iter().find_map(|key| value.get(key)?.as_u64())?;
    let payload = value.get("payload");
    let mut metadata = texts(payload.and_then(|payload| payload.get("metadata")));
    let in_service = is_in_service(&value, &metadata);
    let may_return = !in_service && !is_held_out(&value, &metadata);
    metadata.remove(STATUS);
    metadata.remove(KEPT_STATUS);
    if let Some(revision) = metadata.remove(KEPT_REVISION) {
        metadata.insert(REVISION.to_owned(), revision);
    }
    Some(Instance {
        id: id.to_owned(),
        host: value.get("address")?.as_str()?.to_owned(),
        port: u16::try_from(port).ok()?,
        cluster: String::new(),
        weight: 1.0,
        metadata,
        in_service,
        may_return,
        version: u64::try_from(stat.modified).ok().map(InstanceVersion),
    })
}

/// Returns whether a node is certainly no instance: it is empty, as the nodes above others are, or its JSON names an address
/// and no port.
pub(super) fn is_no_instance(data: &[u8]) -> bool {
    if data.is_empty() {
        return true;
    }
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return false };
    let is_unset = |key| value.get(key).is_none_or(Value::is_null);
    value.get("address").is_some_and(Value::is_string) && is_unset("port") && is_unset("sslPort")
}

/// Returns the host and the port of a node that cannot be read, as far as they are known: by its JSON, or by an id of Dubbo.
/// A host is only known if it is an IP address. Spring's ids are names with ports, and its hosts may be names.
pub(super) fn address(id: &str, data: &[u8]) -> (Option<String>, Option<u16>) {
    let ip = |host: &str| ip_of(host).map(|ip| ip.to_string());
    let value: Value = serde_json::from_slice(data).unwrap_or_default();
    if let Some(host) = value.get("address").and_then(Value::as_str) {
        return (ip(host), None);
    }
    let of_id = id.rsplit_once(':').and_then(|(host, port)| Some((ip(host)?, port.parse().ok()?)));
    of_id.map_or((None, None), |(host, port)| (Some(host), Some(port)))
}

/// Returns the time of the registration, in milliseconds since 1970.
pub(super) fn registered(data: &[u8]) -> Option<u64> {
    serde_json::from_slice::<Value>(data).ok()?.get("registrationTimeUTC")?.as_u64()
}

/// Returns the JSON of an instance that is in service or not, and otherwise as it is. One that was not ready when it was taken
/// out of service is not ready again instead of in service. `None` if it is not an instance.
pub(super) fn set_in_service(data: &[u8], in_service: bool) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(data).ok()?;
    let is_of_dubbo = is_of_dubbo(&value);
    let fields = value.as_object_mut()?;
    let metadata = fields.get_mut("payload").and_then(|payload| payload.get_mut("metadata"));
    let metadata = metadata.and_then(Value::as_object_mut);
    match metadata {
        // It is the only thing that Dubbo reads.
        Some(metadata) if is_of_dubbo => set_for_dubbo(metadata, in_service),
        Some(metadata) => {
            set_for_spring(metadata, in_service);
            set_enabled(fields, in_service);
        }
        None => set_enabled(fields, in_service),
    }
    Some(value.to_string().into_bytes())
}

/// The default is true, and the default serializer leaves it out.
fn set_enabled(fields: &mut Map<String, Value>, in_service: bool) {
    if in_service {
        fields.remove("enabled");
    } else {
        fields.insert("enabled".to_owned(), Value::Bool(false));
    }
}

/// The status by which an application says that it is not ready is kept for the way back.
fn set_for_spring(metadata: &mut Map<String, Value>, in_service: bool) {
    if in_service {
        let kept = metadata.remove(KEPT_STATUS);
        if let Some(status) = metadata.get_mut(STATUS) {
            *status = kept.unwrap_or_else(|| UP.into());
        }
        return;
    }
    let before = metadata.insert(STATUS.to_owned(), OUT_OF_SERVICE.into());
    let before = before.as_ref().and_then(Value::as_str).map(str::trim).unwrap_or_default();
    if before.is_empty() || before.eq_ignore_ascii_case(UP) {
        metadata.remove(KEPT_STATUS);
    } else if !before.eq_ignore_ascii_case(OUT_OF_SERVICE) {
        metadata.insert(KEPT_STATUS.to_owned(), before.into());
    }
}

fn set_for_dubbo(metadata: &mut Map<String, Value>, in_service: bool) {
    if in_service {
        if let Some(revision) = metadata.remove(KEPT_REVISION) {
            metadata.insert(REVISION.to_owned(), revision);
        }
    } else if let Some(revision) = metadata.insert(REVISION.to_owned(), NOTHING.into())
        && revision != NOTHING
    {
        metadata.insert(KEPT_REVISION.to_owned(), revision);
    }
}

fn is_of_dubbo(value: &Value) -> bool {
    value.get("payload").and_then(|payload| payload.get("@class")?.as_str()) == Some(DUBBO)
}

fn is_in_service(value: &Value, metadata: &BTreeMap<String, String>) -> bool {
    if is_of_dubbo(value) {
        return metadata.get(REVISION).is_some_and(|revision| revision != NOTHING);
    }
    let status = metadata.get(STATUS).map_or("", |status| status.trim());
    let is_enabled = value.get("enabled").and_then(Value::as_bool).unwrap_or(true);
    is_enabled && (status.is_empty() || status.eq_ignore_ascii_case(UP))
}

/// Returns whether an instance that is out of service stays so until somebody puts it back. Spring's status may be another one,
/// by which the application says that it is not ready.
fn is_held_out(value: &Value, metadata: &BTreeMap<String, String>) -> bool {
    is_of_dubbo(value)
        || value.get("enabled").and_then(Value::as_bool) == Some(false)
        || metadata.get(STATUS).is_some_and(|status| status.trim().eq_ignore_ascii_case(OUT_OF_SERVICE))
}

fn texts(metadata: Option<&Value>) -> BTreeMap<String, String> {
    let fields = metadata.and_then(Value::as_object).into_iter().flatten();
    fields.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: Stat = Stat { created: 3, modified: 5, version: 1, is_ephemeral: false };

    fn changed(data: &Value, in_service: bool) -> Value {
        let changed = set_in_service(data.to_string().as_bytes(), in_service).unwrap();
        assert_eq!(decode("x", &changed, &STAT).unwrap().in_service, in_service);
        serde_json::from_slice(&changed).unwrap()
    }

    #[test]
    fn an_instance_is_what_was_encoded() {
        for in_service in [true, false] {
            let instance = Instance {
                id: "web-1".to_owned(),
                host: "fd00::7".to_owned(),
                port: 8080,
                cluster: String::new(),
                weight: 1.0,
                metadata: BTreeMap::from([("zone".to_owned(), "a \"b\"".to_owned())]),
                in_service,
                may_return: false,
                version: None,
            };
            let data = encode("shop", &instance, 12);
            let decoded = decode("web-1", &data, &STAT).unwrap();
            assert_eq!(decoded.version, Some(InstanceVersion(5)));
            assert_eq!(Instance { version: None, ..decoded }, instance);
            assert_eq!(registered(&data), Some(12));
        }
    }

    #[test]
    fn an_instance_of_spring_is_steered_and_nothing_else_changes() {
        let before = json!({
            "name": "shop", "id": "x", "address": "10.0.0.1", "port": 80, "sslPort": 443, "new": [1, {"a": null}],
            "payload": {"@class": SPRING, "id": "application-1", "name": "shop", "further": 1,
                "metadata": {STATUS: "UP", "zone": "a"}},
        });
        let mut expected = before.clone();
        expected["enabled"] = json!(false);
        expected["payload"]["metadata"][STATUS] = json!(OUT_OF_SERVICE);
        assert_eq!(changed(&before, false), expected);
        assert_eq!(changed(&expected, true), before);
    }

    #[test]
    fn an_instance_that_is_not_ready_may_return_until_it_is_taken_out() {
        let down = json!({
            "id": "x", "address": "10.0.0.1", "port": 80, "payload": {"@class": SPRING, "metadata": {STATUS: "DOWN"}},
        });
        let read = decode("x", down.to_string().as_bytes(), &STAT).unwrap();
        assert_eq!((read.in_service, read.may_return), (false, true));
        let out = changed(&down, false);
        let read = |value: &Value| decode("x", value.to_string().as_bytes(), &STAT).unwrap();
        assert!(read(&out).is_held_out());
        assert_eq!(read(&out).metadata, read(&down).metadata);
        assert_eq!(changed(&out, false), out, "twice");
        // Its application has never said that it is up.
        let back = set_in_service(out.to_string().as_bytes(), true).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&back).unwrap(), down);
        let read = decode("x", &back, &STAT).unwrap();
        assert_eq!((read.in_service, read.may_return), (false, true));
        // It registers itself again meanwhile.
        let mut up = out;
        up["payload"]["metadata"][STATUS] = json!(UP);
        assert_eq!(changed(&changed(&up, false), true)["payload"]["metadata"], json!({STATUS: UP}));
    }

    #[test]
    fn an_instance_with_another_payload_is_steered_by_curators_field() {
        for payload in [json!(null), json!("text"), json!({"@class": "com.example.Payload", "weight": 3})] {
            let before = json!({"id": "x", "address": "10.0.0.1", "sslPort": 443, "payload": payload});
            let mut expected = before.clone();
            expected["enabled"] = json!(false);
            assert_eq!(changed(&before, false), expected);
            assert_eq!(changed(&expected, true), before);
        }
    }

    #[test]
    fn an_instance_of_dubbo_is_steered_by_its_metadata() {
        let before = json!({
            "id": "10.0.0.1:20880", "address": "10.0.0.1", "port": 20880, "serviceType": "DYNAMIC",
            "payload": {"@class": DUBBO, "metadata": {"dubbo.metadata.revision": "abc"}},
        });
        let mut expected = before.clone();
        expected["payload"]["metadata"][REVISION] = json!("0");
        expected["payload"]["metadata"][KEPT_REVISION] = json!("abc");
        assert_eq!(changed(&before, false), expected);
        // Twice.
        assert_eq!(changed(&expected, false), expected);
        assert_eq!(changed(&expected, true), before);
        let read = |value: &Value| decode("x", value.to_string().as_bytes(), &STAT).unwrap();
        assert_eq!(read(&expected).metadata, read(&before).metadata);
        // An application that offers nothing cannot be put into service.
        let mut nothing = before;
        nothing["payload"]["metadata"][REVISION] = json!("0");
        let data = set_in_service(nothing.to_string().as_bytes(), true).unwrap();
        assert!(!decode("x", &data, &STAT).unwrap().in_service);
    }

    #[test]
    fn what_is_not_an_instance_is_none() {
        for text in ["", "10.0.0.1", "[]", "{}", r#"{"address":"a"}"#, r#"{"address":"a","port":70000}"#] {
            assert_eq!(decode("x", text.as_bytes(), &STAT), None, "{text}");
            let is_certain = ["", r#"{"address":"a"}"#].contains(&text);
            assert_eq!(is_no_instance(text.as_bytes()), is_certain, "{text}");
        }
        assert_eq!(set_in_service(b"[]", true), None);
    }

    #[test]
    fn only_an_ip_address_says_whose_an_unreadable_node_is() {
        let host = |host: &str, port| (Some(host.to_owned()), port);
        assert_eq!(address("x", br#"{"address":"10.0.0.1","port":70000}"#), host("10.0.0.1", None));
        assert_eq!(address("10.0.0.1:20880", b"{}"), host("10.0.0.1", Some(20880)));
        assert_eq!(address("[fd00::7]:20880", b"{}"), host("fd00::7", Some(20880)));
        assert_eq!(address("x", b"10.0.0.1"), (None, None));
        // Spring makes an id of the name of an application and its port.
        assert_eq!(address("web:8080", b"x"), (None, None));
        assert_eq!(address("x", br#"{"address":"web.example.com","port":70000}"#), (None, None));
    }
}
