//! Starts and stops the process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt};
use podward_api::{ClusterRegistry, DiscoveryBinding};
use podward_kube_util::watched::WatchMetrics;
use podward_kube_util::{EventMetrics, Events, api_server};
use podward_runtime::address_policy::{AddressPolicy, ApiServerAddresses, GuardedDialer};
use podward_runtime::admin::{AdminServer, Readiness};
use podward_runtime::grpc_client::BearerToken;
use podward_runtime::telemetry::traces::Traces;
use podward_runtime::tls::CertificateSecret;
use podward_runtime::{client, telemetry};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::dialer::RegistryDialer;
use crate::index::Index;
use crate::keeper::{self, Shared};
use crate::members::{self, Members, Membership, Tenure};
use crate::metrics::BridgeMetrics;
use crate::model::{AdvancedStatefulSetObject, CloneSetObject, PodObject};
use crate::watches;

const SERVICE: &str = "service-discovery-bridge";
/// The namespace whose UID identifies the cluster.
const CLUSTER_NAMESPACE: &str = "kube-system";
/// The longest time for reading it. Then the process ends and is started again, which is seen where a hanging one is not.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the service-discovery-bridge until SIGTERM or SIGINT.
///
/// # Errors
/// Fails if the process cannot start: no API server is configured, there is no certificate, a port is in use, or an
/// argument is invalid.
pub fn run(args: Args) -> anyhow::Result<()> {
    podward_runtime::run(&args.process.clone(), |stop| serve(args, stop))
}

async fn serve(args: Args, stop: CancellationToken) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let config = client::config(&args.kube, SERVICE, version).await?;
    let service_host = std::env::var("KUBERNETES_SERVICE_HOST").ok();
    let host = config.cluster_url.host().unwrap_or_default();
    let api_server = ApiServerAddresses::of_client(host, service_host.as_deref());
    let client = client::with_config(config)?;
    let (metrics, watch_metrics) = (Arc::new(BridgeMetrics::default()), WatchMetrics::default());
    let mut registry = telemetry::registry(SERVICE, version);
    metrics.register(&mut registry);
    let event_metrics = EventMetrics::default();
    event_metrics.register(&mut registry);
    watch_metrics.register(&mut registry);
    let traces = Traces::start(&args.process.traces, SERVICE, version, &mut registry)?;

    let admin = AdminServer::bind(args.process.admin_bind).await?;
    let admin_address = admin.address();
    let readiness = Readiness::default();
    let listed = (
        readiness.condition("pods"),
        readiness.condition("DiscoveryBindings"),
        readiness.condition("ClusterRegistries"),
        readiness.condition("running"),
    );
    let (stop_watches, stop_admin) = (CancellationToken::new(), CancellationToken::new());
    let _stop_on_return = (stop_watches.clone().drop_guard(), stop_admin.clone().drop_guard());
    let admin = tokio::spawn(admin.serve(readiness.clone(), registry, stop_admin.clone()));
    api_server::follow(&client, &api_server, &watch_metrics, &stop_watches);
    let dialer = GuardedDialer::new(AddressPolicy::new(&args.addresses.allowed_addresses, api_server));

    let secret = CertificateSecret::default();
    args.certificate.follow(&secret, &client, &stop).await?;
    let controller = args.controller.replicas(&args.certificate, &secret)?;
    let cluster = match args.cluster_id {
        Some(id) => id,
        None => match stop.run_until_cancelled(cluster_uid(&client, CLUSTER_TIMEOUT)).await {
            Some(uid) => uid?,
            None => return Ok(()),
        },
    };
    tracing::info!(service = SERVICE, version, admin = %admin_address, cluster, replica = args.pod_name, "running");

    let index = Arc::new(Index::new(args.node.node_unreachable_limit));
    tokio::spawn(watches::find_lost_nodes(Arc::clone(&index), stop_watches.clone()));
    macro_rules! watch {
        ($kind:ty, $listed:expr) => {
            tokio::spawn(watches::follow::<$kind>(
                client.clone(),
                Arc::clone(&index),
                watch_metrics.clone(),
                $listed,
                stop_watches.clone(),
            ))
        };
    }
    watch!(PodObject, listed.0);
    watch!(DiscoveryBinding, listed.1);
    watch!(ClusterRegistry, listed.2);
    if args.kruise {
        // OpenKruise may be installed later, so nothing waits for these lists.
        let later = Readiness::default();
        watch!(CloneSetObject, later.condition("CloneSets"));
        watch!(AdvancedStatefulSetObject, later.condition("StatefulSets of OpenKruise"));
    }
    listed.3.set(true);
    // Without the first lists nothing is known, so nothing may be removed.
    if stop.run_until_cancelled(readiness.met()).await.is_none() {
        return Ok(());
    }

    let tenure = Arc::new(Tenure::default());
    let shared = Shared {
        client: client.clone(),
        index,
        metrics: Arc::clone(&metrics),
        tenure: Arc::clone(&tenure),
        dialer: Arc::new(RegistryDialer(dialer)),
        limiters: Arc::default(),
        cluster: cluster.into(),
        namespace: args.certificate.namespace.as_str().into(),
        replica: args.pod_name.as_str().into(),
        controller: Arc::new(controller),
        token: BearerToken::from_file(&args.token_file),
        spans: traces.spans(),
        events: Events::start(client.clone(), SERVICE, &args.pod_name, event_metrics),
    };
    let (sender, members): (watch::Sender<Members>, _) = watch::channel(Members::from([]));
    let stop_membership = CancellationToken::new();
    let membership = Membership {
        client,
        namespace: args.certificate.namespace,
        name: args.pod_name,
        members: sender,
        tenure,
        metrics,
    };
    let membership = tokio::spawn(members::join(membership, stop_membership.clone()));
    keeper::keep(shared, members, stop).await;
    // Only now, so that no other replica works for the same bindings at the same time.
    stop_membership.cancel();
    membership.await.context("the task of the membership panicked")?;
    traces.finish().await;
    stop_watches.cancel();
    stop_admin.cancel();
    admin.await.context("the task of the admin server panicked")?.context("the admin server failed")?;
    tracing::info!("stopped");
    Ok(())
}

/// Returns the UID of the namespace kube-system, which identifies the cluster, if the API server answers within `limit`.
async fn cluster_uid(client: &Client, limit: Duration) -> anyhow::Result<String> {
    let failed = || {
        format!(
            "could not read the UID of namespace {CLUSTER_NAMESPACE}, which identifies the cluster; set --cluster-id"
        )
    };
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = tokio::time::timeout(limit, namespaces.get(CLUSTER_NAMESPACE))
        .await
        .with_context(|| format!("no answer within {} s", limit.as_secs()))
        .with_context(failed)?
        .with_context(failed)?;
    namespace.uid().context("the namespace has no UID")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_start_does_not_wait_for_ever_for_the_api_server() {
        let silent = tower::service_fn(|_: hyper::Request<kube::client::Body>| {
            std::future::pending::<Result<hyper::Response<kube::client::Body>, std::io::Error>>()
        });
        let error = cluster_uid(&Client::new(silent, "default"), Duration::ZERO).await.unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("kube-system") && text.contains("no answer within 0 s"), "{text}");
    }
}
