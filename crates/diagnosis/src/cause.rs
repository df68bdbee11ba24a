//! A cause and its first line.

use jiff::Timestamp;
use serde::Serialize;

use crate::words::{age, safe_text};

/// The kinds of causes. Programs read them in the JSON output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub enum Case {
    /// A ResourceQuota has no room for the pod.
    Quota,
    /// A LimitRange does not allow the pod's requests or limits.
    LimitRange,
    /// Pod Security does not allow the pod.
    PodSecurity,
    /// An admission webhook denies the pod.
    WebhookDenied,
    /// An admission webhook does not answer.
    WebhookFailed,
    /// A ValidatingAdmissionPolicy denies the pod.
    PolicyDenied,
    /// The pod's service account does not exist.
    MissingServiceAccount,
    /// The API server rejects the pod for another reason.
    CreationFailed,
    /// Scheduling gates are left.
    SchedulingGate,
    /// No node has the CPU.
    Cpu,
    /// No node has the memory.
    Memory,
    /// Nodes run as many pods as they may.
    PodsPerNode,
    /// No node has another resource, such as a GPU.
    OtherResource,
    /// Taints are not tolerated.
    Taint,
    /// All nodes that would fit are cordoned.
    Cordoned,
    /// No node has the labels that the pod selects.
    NodeAffinity,
    /// Required affinity to other pods.
    PodAffinity,
    /// Required anti-affinity to other pods.
    PodAntiAffinity,
    /// Topology spread constraints.
    TopologySpread,
    /// A port of the host is taken.
    HostPort,
    /// A PersistentVolumeClaim does not exist or is not bound.
    Claim,
    /// The pod's PersistentVolume can only be used on other nodes.
    VolumeZone,
    /// The pod waits until pods of lower priority have ended.
    Preemption,
    /// The scheduler has not said anything yet.
    NotScheduled,
    /// The scheduler reports something else.
    Unschedulable,
    /// The image does not exist.
    ImageNotFound,
    /// The registry refuses the credentials, or needs some.
    ImageUnauthorized,
    /// A pull secret does not exist.
    MissingPullSecret,
    /// The registry limits the number of pulls.
    ImageRateLimit,
    /// The registry does not answer.
    ImageRegistryUnreachable,
    /// The image cannot be pulled for another reason, or its name is invalid.
    ImagePull,
    /// A Secret does not exist.
    MissingSecret,
    /// A ConfigMap does not exist.
    MissingConfigMap,
    /// A key of a Secret or ConfigMap does not exist.
    MissingKey,
    /// A container cannot be created or started.
    ContainerStart,
    /// A volume cannot be mounted.
    Mount,
    /// A volume is attached to another node.
    MultiAttach,
    /// The pod's network cannot be made.
    Network,
    /// The runtime cannot make the pod's sandbox for another reason.
    Sandbox,
    /// An init container runs or fails.
    InitContainer,
    /// A sidecar has not started.
    Sidecar,
    /// The kubelet has not reported yet.
    Starting,
    /// The startup probe fails.
    StartupProbe,
    /// The readiness probe fails.
    ReadinessProbe,
    /// The liveness probe fails.
    LivenessProbe,
    /// A readiness gate is not True.
    ReadinessGate,
    /// The condition of a readiness gate was never written.
    ReadinessGateMissing,
    /// A container was killed for its memory.
    OutOfMemory,
    /// A container ends again and again.
    Crash,
    /// A `postStart` hook fails.
    PostStart,
    /// A `preStop` hook fails or runs.
    PreStop,
    /// The Job has given up.
    JobBackoff,
    /// The pod has finished.
    Finished,
    /// The kubelet has evicted the pod.
    Evicted,
    /// The node does not report.
    LostNode,
    /// The node reports that it is not Ready.
    NodeNotReady,
    /// Finalizers keep a deleted pod.
    Finalizer,
    /// The pod is being stopped.
    Stopping,
    /// An operation of the lifecycle waits.
    Operation,
    /// A PodDisruptionBudget does not allow an eviction.
    Budget,
    /// More than one PodDisruptionBudget selects the pod, so that the API server rejects evictions.
    SeveralBudgets,
    /// The rollout is paused.
    Paused,
    /// The rollout has no room for another pod.
    NoSurge,
    /// The rollout waits for its new pods.
    Rollout,
    /// A lifecycle hook of a CloneSet does not let pods go on.
    LifecycleHook,
    /// No controller has seen the workload.
    NoController,
    /// A pod is Ready, and a traffic source does not send it traffic.
    Traffic,
    /// Another reason.
    Other,
}

/// A cause: what is wrong with which object, since when, and the next step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// Its kind.
    pub case: Case,
    /// The object to look at, such as `node n1` or `PersistentVolumeClaim shop/data`.
    pub object: String,
    /// One clause in present tense.
    pub what: String,
    /// The time since when it is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The next command.
    pub next: String,
    /// What the cause was read from.
    pub evidence: Vec<String>,
}

impl Cause {
    /// Returns a cause without an age and a next command. `what` is the cause for people, and `object` the object that it is
    /// about.
    #[must_use]
    pub fn new(case: Case, object: impl Into<String>, what: impl Into<String>) -> Self {
        let (object, what) = (object.into(), what.into());
        Self { case, object, what, since: None, next: String::new(), evidence: Vec::new() }
    }

    /// Sets since when it is so, if that is known.
    #[must_use]
    pub fn since(self, since: Option<Timestamp>) -> Self {
        Self { since, ..self }
    }

    /// Sets the next command.
    #[must_use]
    pub fn next(self, next: impl Into<String>) -> Self {
        Self { next: next.into(), ..self }
    }

    pub(crate) fn evidence(mut self, evidence: impl IntoIterator<Item = String>) -> Self {
        self.evidence.extend(evidence.into_iter().filter(|text| !text.is_empty()));
        self
    }

    /// Returns the line for people: what is wrong, for how long, and the next command. Control characters are escaped.
    #[must_use]
    pub fn line(&self, now: Timestamp) -> String {
        let age = self.since.map(|since| format!(" ({})", age(since, now))).unwrap_or_default();
        let next = if self.next.is_empty() { String::new() } else { format!("; next: {}", self.next) };
        safe_text(&format!("{}{age}{next}", self.what))
    }
}
