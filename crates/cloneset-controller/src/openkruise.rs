//! Whether OpenKruise is installed. If it is, the CloneSets are its own.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use podward_kube_util::watched::{Watch, WatchMetrics, Watched};
use podward_runtime::admin::ReadinessCondition;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A resource that OpenKruise defines since its first versions, and Podward does not.
const MARKER: &str = "sidecarsets.apps.kruise.io";

/// Begins to send whether OpenKruise is installed, each time that it changes, until `stop`. Nothing is sent while it is not
/// known.
pub(crate) fn follow(
    client: Client,
    installed: watch::Sender<Option<bool>>,
    metrics: WatchMetrics,
    stop: CancellationToken,
) {
    let definitions: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(client);
    let config = watcher::Config::default().fields(&format!("metadata.name={MARKER}"));
    let begin = move || watcher(definitions.clone(), config.clone());
    let watch = Watch {
        name: "CustomResourceDefinitions",
        listed: ReadinessCondition::default(),
        metrics,
        may_be_absent: false,
        stop,
    };
    // One that is being deleted is as good as gone.
    let read = |definition: PartialObjectMeta<CustomResourceDefinition>| {
        definition.metadata.deletion_timestamp.is_none().then_some(())
    };
    Watched::keep(watch, begin, read, move |found| {
        let found = !found.is_empty();
        installed.send_if_modified(|known| known.replace(found) != Some(found));
    });
}
