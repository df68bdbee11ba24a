//! The versions of Nacos's HTTP interface: their paths and parameters.

use crate::instance::ServiceKey;

/// The defaults of Nacos.
pub(super) const NAMESPACE: &str = "public";
pub(super) const GROUP: &str = "DEFAULT_GROUP";
pub(super) const CLUSTER: &str = "DEFAULT";

/// Larger than any service, so that a list needs no second page that could miss an instance.
const PAGE_SIZE: &str = "1000000";

/// A version of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    /// Nacos 1.x to 2.1.
    V1,
    /// Nacos 2.2 and later 2.x.
    V2,
    /// Nacos 3.x.
    V3,
}

/// Parameters of a call, by name.
pub(super) type Parameters = Vec<(&'static str, String)>;

impl Api {
    /// All versions, the newest first. Nacos 3.0 and 3.1 can also serve the older ones.
    pub(super) const ALL: [Self; 3] = [Self::V3, Self::V2, Self::V1];

    /// The path that registers, changes and removes an instance.
    pub(super) fn instance(self) -> &'static str {
        match self {
            Self::V1 => "v1/ns/instance",
            Self::V2 => "v2/ns/instance",
            Self::V3 => "v3/admin/ns/instance",
        }
    }

    /// The path of the list that clients read. It lacks instances that are disabled.
    pub(super) fn visible(self) -> &'static str {
        match self {
            Self::V1 => "v1/ns/instance/list",
            Self::V2 => "v2/ns/instance/list",
            Self::V3 => "v3/client/ns/instance/list",
        }
    }

    /// The path of the list with all instances.
    pub(super) fn stored(self) -> &'static str {
        match self {
            Self::V1 => "v1/ns/catalog/instances",
            Self::V2 => "v2/ns/catalog/instances",
            Self::V3 => "v3/admin/ns/instance/list",
        }
    }

    /// Returns true if [`stored`](Self::stored) lists one cluster only.
    pub(super) fn lists_clusters(self) -> bool {
        self != Self::V2
    }

    /// The path of the settings of a cluster.
    pub(super) fn cluster(self) -> &'static str {
        match self {
            Self::V1 | Self::V2 => "v1/ns/cluster",
            Self::V3 => "v3/admin/ns/cluster",
        }
    }

    /// Returns the parameters that name a service at `path`. Version 1, and the catalog, have the group in the name.
    pub(super) fn name(self, path: &str, service: &ServiceKey) -> Parameters {
        let group = or_default(&service.group, GROUP);
        let mut parameters = vec![("namespaceId", or_default(&service.namespace, NAMESPACE).to_owned())];
        if path.starts_with("v1/") || path.contains("/catalog/") {
            parameters.push(("serviceName", format!("{group}@@{}", service.name)));
        } else {
            parameters.push(("serviceName", service.name.clone()));
            parameters.push(("groupName", group.to_owned()));
        }
        parameters
    }

    /// Returns the parameters of [`stored`](Self::stored) besides the name.
    pub(super) fn page(self, cluster: &str) -> Parameters {
        let mut parameters = match self {
            Self::V1 | Self::V2 => vec![("pageNo", "1".to_owned()), ("pageSize", PAGE_SIZE.to_owned())],
            Self::V3 => Vec::new(),
        };
        if self.lists_clusters() {
            parameters.push(("clusterName", cluster.to_owned()));
        }
        parameters
    }
}

/// Returns `text`, or `default` if it is empty.
pub(super) fn or_default<'a>(text: &'a str, default: &'a str) -> &'a str {
    if text.is_empty() { default } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_a_part_of_the_name_where_nacos_expects_it() {
        let service = ServiceKey { name: "web".to_owned(), ..ServiceKey::default() };
        let named = |api: Api, path| {
            let parameters = api.name(path, &service);
            form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish()
        };
        let grouped = "namespaceId=public&serviceName=DEFAULT_GROUP%40%40web";
        let separate = "namespaceId=public&serviceName=web&groupName=DEFAULT_GROUP";
        assert_eq!(named(Api::V1, Api::V1.instance()), grouped);
        assert_eq!(named(Api::V2, Api::V2.instance()), separate);
        assert_eq!(named(Api::V2, Api::V2.stored()), grouped);
        assert_eq!(named(Api::V2, Api::V2.cluster()), grouped);
        assert_eq!(named(Api::V3, Api::V3.stored()), separate);
    }
}
