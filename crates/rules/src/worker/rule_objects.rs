//! PodTransitionRules that were read or written.

use std::sync::Arc;

use kube::core::DeserializeGuard;
use podward_api::PodTransitionRule;
use podward_core::rules::Grants;

use super::super::context::RuleContext;
use super::super::state::RuleRecord;

/// A PodTransitionRule, or the error of reading it.
pub(super) type WatchedRule = DeserializeGuard<PodTransitionRule>;

/// Returns the record of an object of the watch. One that can't be read refuses every pod of its namespace.
pub(super) fn record_of(object: WatchedRule) -> RuleRecord {
    let error = match object.0 {
        Ok(object) => return RuleRecord::new(object),
        Err(error) => error,
    };
    let metadata = error.metadata;
    let (namespace, name) = (metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
    tracing::warn!(
        namespace,
        name,
        error = %error.error,
        "could not read a PodTransitionRule; it refuses every pod of its namespace"
    );
    RuleRecord {
        uid: metadata.uid.unwrap_or_default(),
        generation: metadata.generation.unwrap_or_default(),
        version: metadata.resource_version.unwrap_or_default(),
        set: Arc::new(PodTransitionRule::unreadable(&namespace, &name, &error.error)),
        object: None,
        grants: Arc::new(Grants::default()),
        status: Arc::default(),
        pods_read_after: None,
    }
}

/// Stores an object that this controller read or wrote. The watch decides which objects exist: one that it has not
/// delivered yet, or that it has deleted or replaced, is ignored.
pub(super) fn observe_rule(context: &RuleContext, object: PodTransitionRule) {
    context.cache.lock().put(RuleRecord::new(object), &context.pods, false);
}
