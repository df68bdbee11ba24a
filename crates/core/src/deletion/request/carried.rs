//! The parts of a pod that concern its deletion request.

use crate::model::deletion_request::DeletionRequest;

/// The labels and annotations of a pod that concern its deletion request.
#[derive(Clone, Copy, Debug)]
pub struct DeletionMarks<'a> {
    /// `metadata.labels`.
    pub labels: &'a std::collections::BTreeMap<String, String>,
    /// The request, if the annotation can be read.
    pub request: Option<&'a DeletionRequest>,
    /// The annotation [`DELETE_TIMESTAMP`](crate::keys::DELETE_TIMESTAMP).
    pub delete_timestamp: Option<&'a str>,
    /// The annotation [`POD_DELETION_COST`](crate::keys::POD_DELETION_COST).
    pub deletion_cost: Option<&'a str>,
}
