//! Lists of pods in pages. Only what is counted is decoded: most of the metadata of a pod are managed fields, which the
//! API server always sends, and whole pods are listed only where their restarts count.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::api::ListParams;
use kube::core::{ObjectList, Request};
use kube::{Client, Error, Resource};
use podward_kube_util::{ApiError, PodKey, pod_call};
use serde::Deserialize;

/// The number of pods in a page.
pub(crate) const PAGE_SIZE: u32 = 500;

/// The field selector of pods that are not finished.
pub(super) const ACTIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// A pod in a list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodMetadata {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) owner_references: Vec<OwnerReference>,
    pub(super) deletion_timestamp: Option<Time>,
    /// The number of restarts of its containers. 0 if only the metadata were listed.
    #[serde(skip)]
    pub(super) restarts: u32,
}

impl PodMetadata {
    pub(super) fn is_terminating(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Returns whether `owner` is the controller of the pod.
    pub(super) fn is_of(&self, owner: &OwnerReference) -> bool {
        let is_owner =
            |reference: &OwnerReference| reference.controller == Some(true) && reference.uid == owner.uid;
        self.owner_references.iter().any(is_owner)
    }
}

#[derive(Clone, Deserialize)]
struct Listed {
    metadata: PodMetadata,
    #[serde(default)]
    status: ListedStatus,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListedStatus {
    init_container_statuses: Vec<ListedContainer>,
    container_statuses: Vec<ListedContainer>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListedContainer {
    restart_count: i32,
}

impl Listed {
    fn into_pod(self) -> PodMetadata {
        let containers = self.status.init_container_statuses.iter().chain(&self.status.container_statuses);
        let restarts = containers.filter_map(|container| u32::try_from(container.restart_count).ok());
        let restarts = restarts.fold(0, u32::saturating_add);
        PodMetadata { restarts, ..self.metadata }
    }
}

/// The part of each pod that a list contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListedPart {
    Metadata,
    MetadataAndRestarts,
}

/// The pods of a list.
pub(super) struct PodList {
    pub(super) pods: Vec<PodMetadata>,
    /// The resource version of the list. 0 if it cannot be read.
    pub(super) version: u64,
}

/// Lists `part` of the pods that `params` select in the namespace of `pod`, all in one version. `what` is the attempted
/// action for errors, a verb phrase such as `list the pods with the same owner as`.
pub(super) async fn list(
    client: &Client,
    pod: &PodKey,
    what: &'static str,
    params: ListParams,
    part: ListedPart,
) -> Result<PodList, ApiError> {
    let requests = Request::new(Pod::url_path(&(), Some(&pod.namespace)));
    let mut params = params.limit(PAGE_SIZE);
    let mut pods = Vec::new();
    loop {
        let page = async {
            let request = match part {
                ListedPart::Metadata => requests.list_metadata(&params),
                ListedPart::MetadataAndRestarts => requests.list(&params),
            };
            let request = request.map_err(Error::BuildRequest)?;
            client.request::<ObjectList<Listed>>(request).await
        };
        let page = pod_call(what, pod, page).await?;
        pods.extend(page.items.into_iter().map(Listed::into_pod));
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => {
                let version = page.metadata.resource_version.and_then(|version| version.parse().ok());
                return Ok(PodList { pods, version: version.unwrap_or_default() });
            }
        }
    }
}
