//! The names of labels, annotations and conditions of CloneSets. Those without Podward's domain are OpenKruise's.

/// Label: the [`State`](super::State) of a pod.
pub const STATE_LABEL: &str = "lifecycle.apps.kruise.io/state";
/// Annotation: when the state changed last (RFC 3339, seconds).
pub const STATE_TIME: &str = "lifecycle.apps.kruise.io/timestamp";
/// Label: the revision of a pod, `<set>-<hash>`.
pub const REVISION_HASH: &str = "controller-revision-hash";
/// Label: the hash of the revision of a pod.
pub const TEMPLATE_HASH: &str = "pod-template-hash";
/// Label of pods and PersistentVolumeClaims: the identity that a pod has in its set.
pub const INSTANCE_ID: &str = "apps.kruise.io/cloneset-instance-id";
/// Label: the pod is to be deleted. Any value.
pub const SPECIFIED_DELETE: &str = "apps.kruise.io/specified-delete";
/// The value of [`SPECIFIED_DELETE`] on a pod that others have deleted: Podward leaves it to its set. Its claims stay.
pub const DELETED_BY_OTHERS: &str = "by-others";
/// Annotation: the in-place update of a pod, as JSON.
pub const UPDATE_STATE: &str = "apps.kruise.io/inplace-update-state";
/// Annotation: the in-place update that waits for its grace period, as JSON.
pub const UPDATE_GRACE: &str = "apps.kruise.io/inplace-update-grace";
/// Label of a set: pods in PreparingDelete do not count as replicas if the value is `true`.
pub const EXCLUDE_PREPARING_DELETE: &str = "apps.kruise.io/cloneset-scaling-exclude-preparing-delete";
/// The readiness gate, and the condition behind it, that is False while containers are replaced.
pub const UPDATE_READY: &str = "InPlaceUpdateReady";
/// The condition that is False while somebody keeps the pod out of service. Its message is a JSON list of those.
pub const POD_READY: &str = "KruisePodReady";
/// The environment variable with the priority of its container: those with higher ones are replaced first.
pub const CONTAINER_PRIORITY: &str = "KRUISE_CONTAINER_PRIORITY";
/// The user agent of the lifecycle in the message of [`POD_READY`].
pub const LIFECYCLE_AGENT: &str = "Lifecycle";
/// The key of the `preDelete` hook in the message of [`POD_READY`].
pub const PRE_DELETE_KEY: &str = "preDeleteHook";
/// The key of the `inPlaceUpdate` hook in the message of [`POD_READY`].
pub const PRE_UPDATE_KEY: &str = "preUpdateHook";

/// Annotation: the state to which a pod returns if its deletion is cancelled.
pub const PREVIOUS_STATE: &str = "podward.io/cloneset-previous-state";
/// The key of the `preNormal` hook in the message of [`POD_READY`].
pub const PRE_NORMAL_KEY: &str = "preNormalHook";
/// The key of the `inPlaceUpdate` hook after the update, in the message of [`POD_READY`].
pub const POST_UPDATE_KEY: &str = "postUpdateHook";
/// Annotation: the markers that must leave a pod before others delete it, as JSON: [`DeleteHold`](super::DeleteHold).
pub const DELETE_HOLD: &str = "podward.io/cloneset-pre-delete";
/// Annotation of a set: deadlines of its hooks, and whether they hold traffic, as JSON.
pub const HOOK_OPTIONS: &str = "podward.io/cloneset-hooks";
/// Annotation: the `preNormal` hook of the pod was never confirmed.
pub const UNCONFIRMED: &str = "podward.io/cloneset-unconfirmed";
/// Annotation: the markers of the `inPlaceUpdate` hook that were put back on the pod before it had confirmed the last update, as
/// JSON: [`PutBack`](super::PutBack).
pub const REARMED: &str = "podward.io/cloneset-rearmed";
/// Annotation of ControllerRevisions: the hash of the claim templates that the set had with the revision.
pub const CLAIMS_HASH: &str = "podward.io/cloneset-claims-hash";
/// The id of the operation that updates a pod in place, in labels of PodOpsLifecycle.
pub const UPDATE_OPERATION: &str = "cloneset-update";
/// The type of the operation [`UPDATE_OPERATION`].
pub const UPDATE_TYPE: &str = "update";
