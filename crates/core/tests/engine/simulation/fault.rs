//! Deliberate faults, by which the simulation shows that it can fail.

/// A fault of a simulated service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The controller writes without a precondition on the resource version.
    NoVersionPrecondition,
    /// The controller deletes by name, without preconditions.
    DeletesByName,
    /// The controller does not see the finalizers of consumers when it grants.
    IgnoresFinalizers,
    /// The controller takes an answer to a question of an earlier round.
    AnswersOfAnyRound,
    /// The controller takes the answer DONE about a pod as one about another pod with the same name.
    AnswersByName,
    /// The response to an own write hides newer versions of the pod.
    OwnWritesHideNewer,
    /// The webhook allows deletes and evictions without a permission.
    WebhookHoldsNothing,
    /// The webhook does not see that a consumer uses the pod again after the permission was given.
    WebhookIgnoresConsumers,
    /// The webhook takes a Ready that is older than the last change of the gate for a new one.
    WebhookTrustsOldReady,
    /// A deletion request is recorded on whatever pod has the name.
    RecordsByName,
    /// The controller lets two exclusive operations start.
    IgnoresExclusion,
    /// The controller does not begin a postponed deletion again.
    ForgetsPostponed,
    /// An eviction that takes no room is noted as one that has reserved room now.
    NotesNoRoomAsReserved,
}

impl Fault {
    pub(crate) const ALL: [Fault; 13] = [
        Fault::NoVersionPrecondition,
        Fault::DeletesByName,
        Fault::IgnoresFinalizers,
        Fault::AnswersOfAnyRound,
        Fault::AnswersByName,
        Fault::OwnWritesHideNewer,
        Fault::WebhookHoldsNothing,
        Fault::WebhookIgnoresConsumers,
        Fault::WebhookTrustsOldReady,
        Fault::RecordsByName,
        Fault::IgnoresExclusion,
        Fault::ForgetsPostponed,
        Fault::NotesNoRoomAsReserved,
    ];
}
