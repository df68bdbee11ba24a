//! The last result for a check request.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use podward_core::rules::{CheckRequest, RefusalCause, RuleRefusal};

use super::super::webhook::WebhookFingerprint;

/// The results for the check requests of a pod that were last decided.
pub(crate) type RequestReports = HashMap<CheckRequest, RequestReport>;

/// The result for a check request that was last decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestReport {
    /// By rule set: the rules that refuse, and why.
    pub(crate) refusals: BTreeMap<String, Vec<RuleRefusal>>,
    /// One for each refusal.
    pub(crate) fingerprints: BTreeSet<RefusalFingerprint>,
    /// The rule sets among `refusals` whose refusals are reported to operators.
    pub(crate) reported_to_operators: BTreeSet<String>,
    /// True if the operation must make the request again.
    pub(crate) renew: bool,
    /// True if the status of a rule set that selects the pod can't be written. That is the reason to show then.
    pub(crate) held: bool,
}

impl RequestReport {
    /// True if `other` differs only in numbers and ids, such as the number of unavailable pods or the trace id of a
    /// call. They change with each pod that becomes unavailable and with each call; that is not worth a write to every
    /// pod that waits.
    pub(crate) fn is_like(&self, other: &RequestReport) -> bool {
        self.fingerprints == other.fingerprints
            && self.reported_to_operators == other.reported_to_operators
            && self.renew == other.renew
            && self.held == other.held
    }
}

/// The part of a refusal that tells refusals apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RefusalFingerprint {
    pub(crate) set: String,
    pub(crate) rule: String,
    pub(crate) cause: RefusalCause,
    /// The fingerprint of the webhook's reason; `None` if the rule has no webhook, or it has not answered.
    pub(crate) webhook: Option<WebhookFingerprint>,
    /// The reason, if the cause does not say what it is.
    pub(crate) reason: Option<String>,
}

/// Returns the refusal by a budget that is not decided about yet.
pub(crate) fn not_decided(rule: &str) -> RuleRefusal {
    RuleRefusal::new(rule, "waits for its turn")
}

impl RefusalFingerprint {
    /// Returns the fingerprint of a refusal by a rule of the rule set `set`.
    pub(crate) fn of(set: &str, refusal: &RuleRefusal, webhook: Option<WebhookFingerprint>) -> Self {
        let cause = refusal.cause;
        let reason = (cause == RefusalCause::Other).then(|| refusal.reason.clone());
        RefusalFingerprint { set: set.to_owned(), rule: refusal.rule_name.clone(), cause, webhook, reason }
    }
}
