//! By what a registry tells services and instances apart.

use podward_api::registry_connection::{HttpCall, HttpConnection, RegistryConnection, RegistryKind};
use podward_registries::{Capabilities, Instance, ServiceKey, Unreadable};

/// The fields by which a registry tells services and instances apart. The names are those of the templates of Http.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlaceFields {
    kind: RegistryKind,
    fields: Vec<&'static str>,
    /// True if a call that deregisters without a read before names the pod of the instance by its mark.
    names_pod: bool,
}

/// What an instance of a service is known by. Fields that the registry does not look at are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place<'i> {
    id: &'i str,
    host: &'i str,
    port: u16,
    cluster: &'i str,
}

impl PlaceFields {
    /// `connection` is that of the registry.
    pub(crate) fn new(connection: &RegistryConnection, capabilities: &Capabilities) -> Self {
        let kind = connection.kind;
        let http = connection.http.as_ref();
        let mut names_pod = false;
        let mut fields = match kind {
            RegistryKind::Nacos => vec!["service", "namespace", "group", "cluster"],
            RegistryKind::Consul => vec!["service", "namespace"],
            RegistryKind::Etcd | RegistryKind::Eureka | RegistryKind::ZooKeeper => vec!["service"],
            // What the calls do not name is the same for the registry, and lists contain names only.
            RegistryKind::Http => {
                let names = |http: &HttpConnection, field: &str| {
                    http.deregister.as_ref().is_some_and(|call| is_named(call, field))
                        && http.read.as_ref().is_none_or(|read| read.path.contains(&opening(field)))
                        && (field == "service" || http.list.is_none())
                };
                let named = |field: &&str| http.is_some_and(|http| names(http, field));
                ["service", "namespace", "group"].into_iter().filter(named).collect()
            }
        };
        match http {
            Some(http) if kind == RegistryKind::Http && http.read.is_none() => {
                let named = |field: &&str| http.deregister.as_ref().is_some_and(|call| is_named(call, field));
                fields.extend(["id", "host", "port", "cluster"].into_iter().filter(named));
                names_pod =
                    ["metadata}", "metadata['podward-uid']", "metadata['podward-pod']"].iter().any(named);
            }
            _ if capabilities.by_address => fields.extend(["host", "port"]),
            _ => fields.push("id"),
        }
        Self { kind, fields, names_pod }
    }

    /// Returns whether two pods with one address may be one instance for the registry.
    pub(crate) fn may_share(&self) -> bool {
        !self.names_pod && !self.has("id")
    }

    fn has(&self, field: &str) -> bool {
        self.fields.contains(&field)
    }

    /// Returns the same key for names of the same service. It is for comparisons only.
    pub(crate) fn service(&self, service: &ServiceKey) -> ServiceKey {
        let kept = |field, text: &str| if self.has(field) { text.to_owned() } else { String::new() };
        let name = match self.kind {
            // Consul finds a service in any case.
            RegistryKind::Consul => service.name.to_lowercase(),
            _ => kept("service", &service.name),
        };
        let namespace = match (self.kind, service.namespace.as_str()) {
            // Consul Enterprise lists its default namespace.
            (RegistryKind::Consul, "default") => String::new(),
            (_, namespace) => kept("namespace", namespace),
        };
        ServiceKey { namespace, group: kept("group", &service.group), name }
    }

    /// Returns what an instance is known by in its service.
    pub(crate) fn place<'i>(&self, instance: &'i Instance) -> Place<'i> {
        let kept = |field, text: &'i str| if self.has(field) { text } else { "" };
        let cluster = kept("cluster", &instance.cluster);
        Place {
            id: kept("id", &instance.id),
            host: kept("host", &instance.host),
            port: if self.has("port") { instance.port } else { 0 },
            // Nacos has it if an instance names none.
            cluster: if self.kind == RegistryKind::Nacos && cluster == "DEFAULT" { "" } else { cluster },
        }
    }

    /// Returns what an entry that cannot be read is known by in its service.
    pub(crate) fn place_of_unreadable<'e>(&self, entry: &'e Unreadable) -> Place<'e> {
        Place {
            id: if self.has("id") { &entry.id } else { "" },
            host: entry.host.as_deref().filter(|_| self.has("host")).unwrap_or_default(),
            port: entry.port.filter(|_| self.has("port")).unwrap_or_default(),
            cluster: "",
        }
    }
}

/// Returns what a template contains that names a field.
fn opening(field: &str) -> String {
    format!("${{{field}")
}

fn is_named(call: &HttpCall, field: &str) -> bool {
    let opening = opening(field);
    let mut texts = [&call.path, &call.body].into_iter().chain(call.headers.values());
    texts.any(|text| text.contains(&opening))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use podward_api::registry_connection::HttpReading;
    use serde_json::json;

    use super::*;
    use crate::model::tests::{binding, pod};

    fn fields(kind: RegistryKind, http: Option<HttpConnection>, by_address: bool) -> PlaceFields {
        let capabilities = Capabilities {
            own: true,
            steer: true,
            by_address,
            weights: false,
            renewal: None,
            batch: 1,
            list_lag: Duration::ZERO,
            cache: Duration::ZERO,
        };
        PlaceFields::new(&RegistryConnection { kind, http, ..Default::default() }, &capabilities)
    }

    fn service(namespace: &str, group: &str, name: &str) -> ServiceKey {
        ServiceKey { namespace: namespace.to_owned(), group: group.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn names_of_the_same_service() {
        let (a, b) = (service("default", "a", "web"), service("", "b", "web"));
        for (kind, same) in [
            (RegistryKind::Consul, true),
            (RegistryKind::Etcd, true),
            (RegistryKind::Eureka, true),
            (RegistryKind::ZooKeeper, true),
            (RegistryKind::Nacos, false),
        ] {
            let fields = fields(kind, None, false);
            assert_eq!(fields.service(&a) == fields.service(&b), same, "{kind}");
            assert_ne!(fields.service(&a), fields.service(&service("", "a", "shop")), "{kind}");
        }
        let consul = fields(RegistryKind::Consul, None, false);
        assert_ne!(consul.service(&a), consul.service(&service("team", "a", "web")));
        assert_eq!(consul.service(&a), consul.service(&service("", "", "Web")));
    }

    #[test]
    fn the_calls_of_http_say_what_is_the_same() {
        let http = |path: &str, read: Option<&str>| {
            let deregister = HttpCall { path: path.to_owned(), ..HttpCall::default() };
            let read = read.map(|path| HttpReading { path: path.to_owned(), ..Default::default() });
            let http = HttpConnection { deregister: Some(deregister), read, ..Default::default() };
            fields(RegistryKind::Http, Some(http), false)
        };
        let binding = binding(json!({}));
        let instance = binding.desired(&pod("u"), "c").unwrap().instance;
        let moved = Instance { id: "other".to_owned(), port: 9090, ..instance.clone() };
        let (a, b) = (service("", "a", "web"), service("", "b", "shop"));

        let by_host = http("/${service}/${host}", None);
        assert!(
            by_host.place(&instance) == by_host.place(&moved) && by_host.service(&a) != by_host.service(&b)
        );
        assert!(by_host.may_share());
        assert!(!http("/${host}?pod=${metadata['podward-uid']:-none}", None).may_share());
        let by_id = http("/instances/${id:-none}", None);
        assert!(!by_id.may_share());
        assert!(by_id.place(&instance) != by_id.place(&moved) && by_id.service(&a) == by_id.service(&b));
        let read = http("/${group}/${service}/${id}", Some("/${service}"));
        assert_eq!(read.service(&a), service("", "", "web"));
        assert_ne!(read.place(&instance), read.place(&moved), "instances are read with their ids");
    }

    #[test]
    fn an_instance_of_nacos_belongs_to_a_cluster() {
        let nacos = fields(RegistryKind::Nacos, None, true);
        let instance = binding(json!({})).desired(&pod("u"), "c").unwrap().instance;
        let of = |cluster: &str| Instance { cluster: cluster.to_owned(), ..instance.clone() };
        assert_eq!(nacos.place(&of("DEFAULT")), nacos.place(&instance));
        assert_ne!(nacos.place(&of("east")), nacos.place(&instance));
    }
}
