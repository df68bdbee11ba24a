//! The options of a run of Podward, and its namespace.

use super::kind::ServiceKind;

/// The namespace of Podward.
pub(crate) const NAMESPACE: &str = "podward-system";

/// The options of a run of Podward.
#[derive(Clone, Debug)]
pub struct PodwardOptions {
    /// Deny writes that otherwise only cause a warning.
    pub strict: bool,
    /// The number of lifecycle-controllers.
    pub controllers: usize,
    /// The number of traffic-controllers. With none, nothing is responsible for Services.
    pub traffic_controllers: usize,
    /// The number of service-discovery-bridges. With none, nothing is responsible for registries.
    pub bridges: usize,
    /// The number of cloneset-controllers. With none, CloneSets are not defined.
    pub cloneset_controllers: usize,
    /// The time that a killed controller keeps its Lease, in seconds.
    pub lease_seconds: u32,
    /// True if deletes and evictions are held.
    pub hold: bool,
    /// True if deletions are tried as dry runs in the name of their requesters, with the role of the chart for it.
    pub check_deletes_as_requester: bool,
    /// The time that a delete waits for its pod before it is answered, in seconds.
    pub wait_seconds: u32,
    /// The time after which the pods of an unreachable node may be deleted, in seconds.
    pub node_unreachable_seconds: u32,
    /// The URL of kube-proxy's metrics, which the traffic-controller needs for its proof. Only a test cluster with a
    /// real node has them. With `None` the traffic-controller waits for a bounded time instead.
    pub kube_proxy_metrics_url: Option<String>,
    /// The networks that URLs of rules may lead to although they are refused by default. Tests serve webhooks on
    /// loopback.
    pub allowed_addresses: Vec<String>,
    /// Further arguments, by kind of service.
    pub more: Vec<(ServiceKind, String)>,
    /// The user names that may write protected labels. If empty, Podward's own.
    pub trusted: Vec<String>,
    /// The cargo profile of the services: `dev`, `bench-lite`, `release`.
    pub profile: String,
    /// The log filter of services, such as `info` or `info,podward_runtime=debug`. The default is `PODWARD_LOG` of
    /// this process.
    pub log: String,
}

impl Default for PodwardOptions {
    fn default() -> Self {
        Self {
            strict: false,
            controllers: 1,
            traffic_controllers: 1,
            bridges: 0,
            cloneset_controllers: 0,
            lease_seconds: 5,
            hold: true,
            check_deletes_as_requester: false,
            wait_seconds: 0,
            node_unreachable_seconds: 60,
            kube_proxy_metrics_url: Some("auto".to_owned()),
            allowed_addresses: vec!["127.0.0.0/8".to_owned()],
            more: Vec::new(),
            trusted: Vec::new(),
            profile: "dev".to_owned(),
            log: std::env::var("PODWARD_LOG").unwrap_or_else(|_| "info".to_owned()),
        }
    }
}
