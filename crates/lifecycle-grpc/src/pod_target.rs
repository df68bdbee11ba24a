//! The pod that a call is about.

use podward_core::is_object_name;
use podward_kube_util::{CachedPod, PodKey};
use podward_proto::v1;
use tonic::Status;

/// The pod that a call is about.
#[derive(Clone, Debug)]
pub(super) struct PodTarget {
    pub(super) key: PodKey,
    /// `None` stands for any pod with this name.
    pub(super) uid: Option<String>,
}

impl PodTarget {
    /// Reads the reference of a request.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is missing, or the namespace or the name is not valid.
    pub(super) fn parse(reference: Option<v1::PodReference>) -> Result<Self, Status> {
        let v1::PodReference { namespace, name, uid } =
            reference.ok_or_else(|| Status::invalid_argument("the field pod is missing"))?;
        for (field, text) in [("namespace", &namespace), ("name", &name)] {
            if !is_object_name(text) {
                return Err(Status::invalid_argument(format!(
                    "pod.{field} is missing or is not a valid name"
                )));
            }
        }
        Ok(Self { key: PodKey { namespace, name }, uid: Some(uid).filter(|uid| !uid.is_empty()) })
    }

    /// Checks that `pod` has the requested UID.
    ///
    /// # Errors
    /// NOT_FOUND if it has another one.
    pub(super) fn check_uid(&self, pod: &CachedPod) -> Result<(), Status> {
        match &self.uid {
            Some(uid) if uid != pod.uid() => Err(Status::not_found(format!(
                "pod {} with UID {uid} does not exist any more; the pod with this name has UID {}",
                self.key,
                pod.uid()
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the status for a pod that does not exist.
    pub(super) fn not_found(&self) -> Status {
        Status::not_found(format!("there is no pod {}", self.key))
    }
}
