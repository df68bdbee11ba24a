//! Pod templates: revisions, in-place changes, and new pods. Pure functions of objects.
//!
//! Templates are JSON values: what this program does not know is kept in revisions and pods.
//!
//! ```text
//!  template ──► revision ──► new_pod, claims              a pod of a revision
//!                  └───────► in_place::change             what differs between two revisions
//!                               └──► apply::update ──► patches of the pod
//!  pod ──► completion::progress ──► apply::next ──► patches of its next containers
//! ```
//!
//! # Guarantees
//! Property tests check:
//!
//! - A pod that was changed in place equals a new pod of the same template in images, resources, labels, annotations
//!   and finalizers, whatever updates came before it, finished or not.
//! - When its update is complete, its containers run the images of the template, with the labels and annotations in
//!   their environment.
//! - The hash of a template does not depend on the order of its keys.
//! - No input ends the process.

mod apply;
mod claims;
mod completion;
mod image_name;
mod in_place;
mod in_place_change;
mod instance_id;
mod json;
mod metadata;
mod new_pod;
mod owner;
mod pending_update;
mod pod_patch;
mod replaced;
mod resized;
mod resources;
mod revision;
mod revision_hash;
mod safe_text;
mod seconds;
#[cfg(test)]
mod test_pods;
mod update_state;

pub(crate) use apply::{Patches, Update, next, update};
pub(crate) use claims::{KeptIds, claim_name, hand_over, id, kept_ids, new_claims, unused_claims};
pub(crate) use completion::{Progress, Report, progress};
pub(crate) use in_place::{Change, change};
pub(crate) use in_place_change::InPlaceChange;
pub(crate) use instance_id::instance_ids;
pub(crate) use new_pod::{NewPod, new_pod};
pub(crate) use owner::Owner;
pub(crate) use pod_patch::PodPatch;
pub(crate) use revision::{
    NewRevision, WantedRevision, claims_changed, raise_patch, template_of, to_delete, wanted_revision,
};
pub(crate) use revision_hash::{is_same_revision, short_hash};
pub(crate) use seconds::whole_seconds;
