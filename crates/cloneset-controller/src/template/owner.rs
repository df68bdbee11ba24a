//! The set that owns pods, revisions and claims.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use podward_api::CloneSet;

/// What names a set in the objects that it owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Its UID.
    pub(crate) uid: String,
}

impl Owner {
    /// Returns what names the set.
    pub(crate) fn of(set: &CloneSet) -> Self {
        Self {
            namespace: set.namespace().unwrap_or_default(),
            name: set.name_any(),
            uid: set.uid().unwrap_or_default(),
        }
    }

    /// Returns the reference in the objects that it owns.
    #[must_use]
    pub(crate) fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: CloneSet::api_version(&()).into_owned(),
            kind: "CloneSet".to_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    /// Returns true if the set controls the claim.
    pub(super) fn owns(&self, claim: &PersistentVolumeClaim) -> bool {
        let references = claim.metadata.owner_references.iter().flatten();
        references.into_iter().any(|it| it.controller == Some(true) && it.uid == self.uid)
    }
}
