//! The arguments of the services.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::Result;

use super::{
    identity,
    kind::ServiceKind,
    options::{NAMESPACE, PodwardOptions},
};
use crate::{cluster::Cluster, private_file};

/// The addresses on which a service listens, and those of the lifecycle-controllers.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServiceAddresses<'a> {
    /// The address of probes and metrics.
    pub(super) admin: SocketAddr,
    /// The address of the service's own API.
    pub(super) serves: SocketAddr,
    /// The gRPC addresses of the lifecycle-controllers.
    pub(super) controllers: &'a [SocketAddr],
}

/// Returns the arguments of the service `name`, and writes the files that they name.
pub(super) async fn of(
    cluster: &Cluster,
    options: &PodwardOptions,
    kind: ServiceKind,
    name: &str,
    at: ServiceAddresses<'_>,
) -> Result<Vec<String>> {
    let ServiceAddresses { admin, serves, controllers } = at;
    let mut args = ServiceArgs::default();
    args.add("--admin-bind", admin).add("--log", &options.log);
    // It serves only the administration port.
    if kind != ServiceKind::ClonesetController {
        let (cert, key) = certificate(cluster, kind, name, serves)?;
        args.file("--tls-cert", &cert).file("--tls-key", &key);
    }
    let ca = cluster.dir().join("services-ca.crt");
    private_file(&ca, &cluster.server_ca())?;
    let account = identity::of(cluster, kind.as_str()).await?;
    args.file("--kubeconfig", &account.kubeconfig);
    let controllers: Vec<String> = controllers.iter().map(|address| format!("https://{address}")).collect();
    let controllers = controllers.join(",");
    if kind.has_leader() {
        args.add("--lease-namespace", NAMESPACE).add("--lease-duration", options.lease_seconds);
        // As those of a container, its processes run one after the other.
        args.add("--pod-uid", name);
    }
    match kind {
        ServiceKind::MutatingWebhook | ServiceKind::ValidatingWebhook => {
            args.add("--bind", serves);
            if options.strict {
                args.flag("--strict");
            }
            for user in &options.trusted {
                args.add("--trusted-writer", user);
            }
        }
        ServiceKind::LifecycleController => {
            args.add("--grpc-bind", serves).add("--advertise", serves);
            args.file("--relay-ca", &ca).file("--client-ca", &ca);
            args.file("--token-file", &account.token);
            args.add("--hook-token-account", format!("{NAMESPACE}/{}", kind.as_str()));
            args.add("--node-unreachable-limit", options.node_unreachable_seconds);
            if options.check_deletes_as_requester {
                args.flag("--check-deletes-as-requester");
            }
            for network in &options.allowed_addresses {
                args.add("--allow-address", network);
            }
        }
        ServiceKind::ServiceDiscoveryBridge => {
            args.add("--namespace", NAMESPACE).add("--pod-name", name).flag("--kruise");
            args.add("--controller-url", &controllers).file("--controller-ca", &ca);
            args.file("--token-file", &account.token);
            for network in &options.allowed_addresses {
                args.add("--allow-address", network);
            }
        }
        // It has no others.
        ServiceKind::ClonesetController => {}
        ServiceKind::TrafficController => {
            args.add("--bind", serves).add("--advertise-url", format!("https://{serves}"));
            args.file("--advertise-ca", &ca);
            args.add("--controller-url", &controllers).file("--controller-ca", &ca);
            args.file("--token-file", &account.token);
            if let Some(url) = options.kube_proxy_metrics_url.as_deref().filter(|_| has_kube_proxy(cluster)) {
                args.add("--kube-proxy-metrics-url", url);
            }
        }
    }
    if kind == ServiceKind::ValidatingWebhook {
        args.add("--controller-url", &controllers).file("--controller-ca", &ca);
        args.file("--token-file", &account.token);
        args.add("--hold", options.hold);
        args.add("--wait", options.wait_seconds);
        for network in &options.allowed_addresses {
            args.add("--allow-address", network);
        }
        args.add("--node-unreachable-limit", options.node_unreachable_seconds);
    }
    args.0.extend(options.more.iter().filter(|(of, _)| *of == kind).map(|(_, argument)| argument.clone()));
    Ok(args.0)
}

/// Returns whether services reach kube-proxy. Services of a test cluster share the network of its node, and so reach
/// its loopback address.
pub(super) fn has_kube_proxy(cluster: &Cluster) -> bool {
    cluster.test_cluster().is_some_and(|test_cluster| test_cluster.shape() == podward_testbed::Shape::Node)
}

/// Returns a certificate for the address of the service, for loopback and for the name of its Service.
fn certificate(
    cluster: &Cluster,
    kind: ServiceKind,
    name: &str,
    at: SocketAddr,
) -> Result<(PathBuf, PathBuf)> {
    let (cert, key) = (cluster.dir().join(format!("{name}.crt")), cluster.dir().join(format!("{name}.key")));
    let address = at.ip().to_string();
    let pem = cluster.server_certificate(&[&address, "127.0.0.1", "localhost", kind.as_str()])?;
    private_file(&cert, &pem.cert)?;
    private_file(&key, &pem.key)?;
    Ok((cert, key))
}

#[derive(Default)]
struct ServiceArgs(Vec<String>);

impl ServiceArgs {
    fn flag(&mut self, name: &str) -> &mut Self {
        self.0.push(name.to_owned());
        self
    }

    fn add(&mut self, name: &str, value: impl ToString) -> &mut Self {
        self.0.extend([name.to_owned(), value.to_string()]);
        self
    }

    fn file(&mut self, name: &str, path: &Path) -> &mut Self {
        self.add(name, path.display())
    }
}
