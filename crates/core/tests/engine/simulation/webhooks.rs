//! The replicas of the webhooks, as they call the core.

use podward_core::deletion::hold::{EvictionCaller, EvictionTarget, HeldEvictions, eviction_target};
use podward_core::deletion::with_label_author;
use podward_core::{ReviewPolicy, UnixNanos, Writer, on_create, on_update, review, review_raw};

use super::fault::Fault;
use super::object::Object;
use super::server::{PODWARD, Precondition, Refusal};

/// What one replica remembers. Everything else is on the pods.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) is_up: bool,
    held: HeldEvictions,
}

impl Default for Replica {
    fn default() -> Self {
        Replica { is_up: true, held: HeldEvictions::default() }
    }
}

fn policy() -> ReviewPolicy {
    ReviewPolicy { strict: true, trusted: vec![PODWARD.to_owned()] }
}

/// Admits a new pod.
pub(crate) fn admit_create(object: &mut Object, now: UnixNanos) -> Result<(), Refusal> {
    let writer = Writer { username: "system:serviceaccount:kube-system:statefulset-controller", groups: &[] };
    let pod = object.to_pod();
    if !review_raw(None, &pod, &writer, &ReviewPolicy::default()).denials.is_empty() {
        return Err(Refusal::Denied);
    }
    let patch = with_label_author(on_create(&pod, false, &[], now), None, &pod, false, &writer);
    object.apply(&patch);
    let found = review(None, &object.to_pod(), &writer, &ReviewPolicy::default());
    if found.denials.is_empty() { Ok(()) } else { Err(Refusal::Denied) }
}

/// Admits an update in the name of `user`: the mutating webhook advances it, and the validating webhook reviews it.
pub(crate) fn admit_update(
    old: &Object,
    new: &mut Object,
    user: &str,
    now: UnixNanos,
    fault: Option<Fault>,
) -> Result<(), Refusal> {
    let (writer, policy) = (Writer { username: user, groups: &[] }, policy());
    let reviewed = |object: &Object| {
        let mut pod = object.to_pod();
        if fault == Some(Fault::WebhookTrustsOldReady) {
            let conditions = pod.status.conditions.iter_mut().flatten();
            conditions.for_each(|condition| condition.last_transition_time = Some(now.to_rfc3339()));
        }
        pod
    };
    let (stored, raw) = (reviewed(old), reviewed(new));
    if !review_raw(Some(&stored), &raw, &writer, &policy).denials.is_empty() {
        return Err(Refusal::Denied);
    }
    let patch = on_update(Some(&stored), &raw, now);
    new.apply(&with_label_author(patch, Some(&stored), &raw, false, &writer));
    let found = review(Some(&stored), &reviewed(new), &writer, &policy);
    if found.denials.is_empty() { Ok(()) } else { Err(Refusal::Denied) }
}

impl Replica {
    /// Finds out whether an eviction by `user` means the stored `pod`.
    pub(crate) fn target(
        &self,
        pod: &Object,
        user: &str,
        precondition: &Precondition,
        now: UnixNanos,
    ) -> Result<(), Refusal> {
        let version = precondition.version.map(|version| version.to_string());
        match eviction_target(&pod.to_pod(), precondition.uid.as_deref(), version.as_deref()) {
            EvictionTarget::ThisPod => {}
            EvictionTarget::Other | EvictionTarget::LaterVersion => return Err(Refusal::Conflict),
        }
        let Some(caller) = caller(pod, user, precondition) else { return Ok(()) };
        if self.held.meant(&caller, &pod.uid, now).is_some() { Err(Refusal::NotFound) } else { Ok(()) }
    }

    /// Remembers that `user` was told to repeat the eviction.
    pub(crate) fn remember(&mut self, pod: &Object, user: &str, precondition: &Precondition, now: UnixNanos) {
        if let Some(caller) = caller(pod, user, precondition) {
            self.held.remember(caller, &pod.uid, now);
        }
    }
}

fn caller(pod: &Object, user: &str, precondition: &Precondition) -> Option<EvictionCaller> {
    precondition.uid.is_none().then(|| EvictionCaller {
        namespace: "shop".to_owned(),
        name: pod.name.to_owned(),
        user: user.to_owned(),
    })
}
