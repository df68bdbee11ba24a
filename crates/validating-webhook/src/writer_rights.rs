//! The rights of the writers of pods, beyond the right to update pods.
//!
//! [`podward_core::deletion::writes`] says which writes need them. A SubjectAccessReview asks the API server whether the
//! writer has the right. Other writes cost no request.

mod metrics;

use std::fmt;
use std::time::Instant;

use kube::Client;
use podward_core::deletion::writes::{DeletionMark, breaks_glass, leads_to_deletion, opts_out_during};
use podward_core::keys::BREAK_GLASS;
use podward_core::{Pod, ReviewPolicy, Writer, untrusted_permissions};
use podward_runtime::WebhookSetup;
use podward_runtime::admission::{AdmissionRequest, AdmissionResponse, AdmissionUser};
use podward_runtime::authn::Identity;
use tonic::{Code, Status};

use self::metrics::{RightsMetrics, WriteOutcome, WriterRight};
use crate::hold::DeletionHold;
use crate::pod_access::PodAccess;
use crate::pod_events::{EventPod, PodEvents};
use crate::reviewed_object::ReviewedObject;

/// A right that a write needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NeededRight {
    /// To delete the pod, because of a mark.
    Delete(DeletionMark),
    /// To have the pod deleted without draining.
    BreakGlass,
}

/// Checks the rights of writers, and reports writes that somebody should know about.
pub struct WriterRights {
    access: PodAccess,
    events: PodEvents,
    metrics: RightsMetrics,
}

impl fmt::Debug for WriterRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterRights").field("access", &self.access).finish_non_exhaustive()
    }
}

impl WriterRights {
    /// Asks the API server of `client`. Shares events and answers with `hold`, if deletes are held.
    #[must_use]
    pub fn new(client: Client, hold: Option<&DeletionHold>, setup: &mut WebhookSetup) -> Self {
        let metrics = RightsMetrics::default();
        metrics.register(&mut setup.registry);
        let (access, events) = match hold {
            Some(hold) => (hold.access().clone(), hold.events().clone()),
            None => (PodAccess::new(client.clone()), PodEvents::new(client, &mut setup.registry)),
        };
        Self { access, events, metrics }
    }

    /// Returns the check of the write of `new` in `request`. `None` if the write needs no more rights.
    pub(crate) fn check<'a>(
        &'a self,
        request: &'a AdmissionRequest<'a, ReviewedObject>,
        new: &'a Pod,
        policy: &'a ReviewPolicy,
    ) -> Option<RightsCheck<'a>> {
        if policy.trusts(&writer(&request.user_info)) {
            return None;
        }
        let old = request.old_object.as_ref().map(|old| &old.pod);
        let mut needed: Vec<NeededRight> =
            leads_to_deletion(old, new).into_iter().map(NeededRight::Delete).collect();
        needed.extend(breaks_glass(old, new).then_some(NeededRight::BreakGlass));
        (!needed.is_empty()).then_some(RightsCheck { rights: self, request, policy, needed })
    }

    /// Sends events about a write of `new` that is allowed: an opt-out while something is under way, and permissions to
    /// operate that an untrusted writer sets.
    pub(crate) fn report(
        &self,
        request: &AdmissionRequest<'_, ReviewedObject>,
        new: &Pod,
        policy: &ReviewPolicy,
    ) {
        let writer = writer(&request.user_info);
        let (Some(pod), false) = (event_pod(request), policy.trusts(&writer)) else { return };
        let old = request.old_object.as_ref().map(|old| &old.pod);
        if let Some(left) = old.and_then(|old| opts_out_during(old, new)) {
            let note = format!("{} has opted the pod out of Podward although {left}", writer.username);
            self.events.warn(pod, "OptedOut", ("Update", writer.username), &note);
        }
        let permissions = untrusted_permissions(old, new, &writer, policy);
        if !permissions.is_empty() {
            let note = format!(
                "{} has set {}, which only Podward may set: the pod may be changed although it was not drained",
                writer.username,
                permissions.join(", ")
            );
            self.events.warn(pod, "UntrustedPermission", ("Update", writer.username), &note);
        }
    }
}

fn writer<'a>(user: &'a AdmissionUser<'_>) -> Writer<'a> {
    Writer { username: &user.username, groups: &user.groups }
}

/// Returns the stored pod that an event about the write can name. `None` for a dry run, and for a pod that is created.
fn event_pod<'a>(request: &'a AdmissionRequest<'_, ReviewedObject>) -> Option<EventPod<'a>> {
    let metadata = &request.old_object.as_ref().filter(|_| !request.dry_run)?.pod.metadata;
    Some(EventPod { namespace: &request.namespace, name: &metadata.name, uid: &metadata.uid })
}

/// The check of one write.
pub(crate) struct RightsCheck<'a> {
    rights: &'a WriterRights,
    request: &'a AdmissionRequest<'a, ReviewedObject>,
    policy: &'a ReviewPolicy,
    needed: Vec<NeededRight>,
}

impl RightsCheck<'_> {
    /// Adds the result of the check to `response`, which allows the write.
    pub(crate) async fn apply_to(
        self,
        mut response: AdmissionResponse,
        deadline: Instant,
    ) -> AdmissionResponse {
        let writer = self.request.user_info.identity();
        for needed in &self.needed {
            let (outcome, finding) = self.judge(&writer, *needed, deadline).await;
            self.rights.metrics.count(right_of(*needed), outcome);
            self.report(*needed, outcome, &finding);
            match outcome {
                WriteOutcome::Allowed => {}
                WriteOutcome::Warned => response = response.warn([finding]),
                WriteOutcome::Denied => {
                    return AdmissionResponse::forbid(finding).warn(response.warnings);
                }
                WriteOutcome::Unknown => {
                    return AdmissionResponse::try_again(finding).warn(response.warnings);
                }
            }
        }
        response
    }

    fn report(&self, needed: NeededRight, outcome: WriteOutcome, finding: &str) {
        let reason = match needed {
            NeededRight::Delete(_) => "DeletionMarkNotAllowed",
            NeededRight::BreakGlass => "BreakGlassNotAllowed",
        };
        if matches!(outcome, WriteOutcome::Warned | WriteOutcome::Denied)
            && let Some(pod) = event_pod(self.request)
        {
            let writer = writer(&self.request.user_info);
            let note = format!("a write by {}: {finding}", writer.username);
            self.rights.events.warn(pod, reason, ("Update", writer.username), &note);
        }
    }

    async fn judge(
        &self,
        writer: &Identity,
        needed: NeededRight,
        deadline: Instant,
    ) -> (WriteOutcome, String) {
        let access = &self.rights.access;
        let (namespace, name) = (self.request.namespace.as_ref(), self.request.name.as_ref());
        match needed {
            NeededRight::Delete(DeletionMark::Request) => {
                let text = format!(
                    "only Podward writes {}, and {} is not among its service accounts or trusted writers; to request \
                     the deletion of pod {namespace}/{name}, delete it",
                    DeletionMark::Request.words(),
                    writer.user
                );
                (WriteOutcome::Denied, text)
            }
            NeededRight::Delete(mark @ DeletionMark::Label) => {
                let what = format!("{} requests the deletion of pod {namespace}/{name}", mark.words());
                match access.may_delete(writer, namespace, name, deadline).await {
                    Ok(()) => (WriteOutcome::Allowed, String::new()),
                    Err(status) if self.policy.strict => refusal(&what, &status),
                    Err(status) => (WriteOutcome::Warned, format!("{what}: {}", status.message())),
                }
            }
            NeededRight::BreakGlass => {
                let what = format!(
                    "the annotation {BREAK_GLASS} allows to delete pod {namespace}/{name} without draining it"
                );
                match access.may_break_glass(writer, namespace, name, deadline).await {
                    Ok(()) => (WriteOutcome::Allowed, String::new()),
                    Err(status) => refusal(&what, &status),
                }
            }
        }
    }
}

fn refusal(what: &str, status: &Status) -> (WriteOutcome, String) {
    match status.code() {
        Code::PermissionDenied => (WriteOutcome::Denied, format!("{what}: {}", status.message())),
        _ => (WriteOutcome::Unknown, format!("{what}: {}; nothing was changed, try again", status.message())),
    }
}

fn right_of(needed: NeededRight) -> WriterRight {
    match needed {
        NeededRight::Delete(_) => WriterRight::Delete,
        NeededRight::BreakGlass => WriterRight::BreakGlass,
    }
}
