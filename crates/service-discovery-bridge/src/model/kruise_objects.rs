//! OpenKruise's workloads, without what the bridge does not read.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::Deserialize;

use super::kruise::{GROUP, KruiseWorkload, Lifecycle};

#[derive(Clone, Debug, Default, Deserialize)]
struct Spec {
    #[serde(default)]
    lifecycle: Option<Lifecycle>,
}

macro_rules! workload {
    ($name:ident, $kind:literal, $version:literal, $plural:literal) => {
        #[doc = concat!("A ", $kind, " of OpenKruise.")]
        #[derive(Clone, Debug, Default, Deserialize)]
        pub(crate) struct $name {
            metadata: ObjectMeta,
            #[serde(default)]
            spec: Spec,
        }

        impl $name {
            /// Returns what pods name as their owner.
            pub(crate) fn workload(&self) -> KruiseWorkload {
                KruiseWorkload {
                    namespace: self.metadata.namespace.clone().unwrap_or_default(),
                    kind: $kind.to_owned(),
                    name: self.metadata.name.clone().unwrap_or_default(),
                }
            }

            /// Returns the hooks.
            pub(crate) fn lifecycle(self) -> Lifecycle {
                self.spec.lifecycle.unwrap_or_default()
            }
        }

        impl Resource for $name {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> Cow<'_, str> {
                GROUP.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

workload!(CloneSetObject, "CloneSet", "v1alpha1", "clonesets");
workload!(AdvancedStatefulSetObject, "StatefulSet", "v1beta1", "statefulsets");
