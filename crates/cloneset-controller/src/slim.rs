//! What caches keep of objects.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Resource;
use serde::de::DeserializeOwned;

use crate::pod::Pod;

/// An object of which a cache keeps only what is read.
pub(crate) trait Slim:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Removes what nothing reads.
    fn slim(&mut self);
}

impl Slim for Pod {
    /// Its other fields are skipped when it is read.
    fn slim(&mut self) {}
}

impl Slim for ControllerRevision {
    fn slim(&mut self) {
        self.metadata.managed_fields = None;
    }
}

impl Slim for PersistentVolumeClaim {
    fn slim(&mut self) {
        self.metadata.managed_fields = None;
        self.status = None;
    }
}
