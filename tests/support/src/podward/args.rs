//! What each service is told when it starts.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::Result;

use super::{Kind, NAMESPACE, Options, identity};
use crate::{cluster::Cluster, private_file};

/// Where a service listens, and where it finds the lifecycle-controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses<'a> {
    /// Probes and metrics.
    pub(super) admin: SocketAddr,
    /// What it is there for.
    pub(super) serves: SocketAddr,
    /// gRPC of the lifecycle-controllers.
    pub(super) controllers: &'a [SocketAddr],
}

/// The arguments of the service `name`, with the files that they name.
pub(super) async fn of(
    cluster: &Cluster,
    options: &Options,
    kind: Kind,
    name: &str,
    at: Addresses<'_>,
) -> Result<Vec<String>> {
    let Addresses { admin, serves, controllers } = at;
    let mut args = Args::default();
    args.add("--admin-bind", admin).add("--log", &options.log);
    let (cert, key) = certificate(cluster, kind, name, serves)?;
    args.file("--tls-cert", &cert).file("--tls-key", &key);
    let ca = cluster.dir().join("services-ca.crt");
    private_file(&ca, &cluster.server_ca())?;
    let account = identity::of(cluster, kind.as_str()).await?;
    args.file("--kubeconfig", &account.kubeconfig);
    let controllers: Vec<String> = controllers.iter().map(|address| format!("https://{address}")).collect();
    let controllers = controllers.join(",");
    match kind {
        Kind::MutatingWebhook | Kind::ValidatingWebhook => {
            args.add("--bind", serves);
            if options.strict {
                args.flag("--strict");
            }
            for user in &options.trusted {
                args.add("--trusted-writer", user);
            }
        }
        Kind::LifecycleController => {
            args.add("--lease-namespace", NAMESPACE).add("--lease-duration", options.lease_seconds);
            args.add("--grpc-bind", serves).add("--advertise", serves);
            args.file("--relay-ca", &ca).file("--client-ca", &ca);
            args.file("--token-file", &account.token).file("--hook-token-file", &account.token);
            args.add("--node-unreachable-limit", options.node_unreachable_seconds);
        }
        Kind::TrafficController => {
            args.add("--bind", serves).add("--advertise-url", format!("https://{serves}"));
            args.file("--advertise-ca", &ca);
            args.add("--controller-url", &controllers).file("--controller-ca", &ca);
            args.file("--token-file", &account.token);
            if let Some(url) = options.kube_proxy_metrics_url.as_deref().filter(|_| has_kube_proxy(cluster)) {
                args.add("--kube-proxy-metrics-url", url);
            }
        }
    }
    if kind == Kind::ValidatingWebhook {
        args.add("--controller-url", &controllers).file("--controller-ca", &ca);
        args.file("--token-file", &account.token);
        args.add("--hold", options.hold);
        args.add("--wait", options.wait_seconds);
        args.add("--node-unreachable-limit", options.node_unreachable_seconds);
    }
    args.0.extend(options.more.iter().filter(|(of, _)| *of == kind).map(|(_, argument)| argument.clone()));
    Ok(args.0)
}

/// The services of a bed share the network of its node, and so reach what listens on its loopback.
pub(super) fn has_kube_proxy(cluster: &Cluster) -> bool {
    cluster.bed().is_some_and(|bed| bed.shape() == podward_testbed::Shape::Node)
}

/// A certificate for the address at which the service is reached, for loopback and for the name of its Service.
fn certificate(cluster: &Cluster, kind: Kind, name: &str, at: SocketAddr) -> Result<(PathBuf, PathBuf)> {
    let (cert, key) = (cluster.dir().join(format!("{name}.crt")), cluster.dir().join(format!("{name}.key")));
    let address = at.ip().to_string();
    let pem = cluster.server_certificate(&[&address, "127.0.0.1", "localhost", kind.as_str()])?;
    private_file(&cert, &pem.cert)?;
    private_file(&key, &pem.key)?;
    Ok((cert, key))
}

#[derive(Default)]
struct Args(Vec<String>);

impl Args {
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
