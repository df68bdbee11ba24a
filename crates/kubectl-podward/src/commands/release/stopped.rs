//! The Deployments that were scaled to zero, and how they are started again.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::apps::v1::Deployment;

use super::super::doctor::POLICY_BINDING;

/// The chart's default number of replicas.
const DEFAULT_REPLICAS: i32 = 2;

/// Deployments of a namespace that were scaled to zero.
#[derive(Debug)]
pub(super) struct StoppedServices {
    namespace: String,
    /// Their names, by the number of replicas that they had.
    names: BTreeMap<i32, Vec<&'static str>>,
}

impl StoppedServices {
    pub(super) fn new(namespace: &str) -> Self {
        StoppedServices { namespace: namespace.to_owned(), names: BTreeMap::new() }
    }

    /// Adds a Deployment as it was before.
    pub(super) fn add(&mut self, name: &'static str, found: &Deployment) {
        let wanted = found.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        // An earlier attempt has scaled it down.
        let replicas = if wanted == 0 { DEFAULT_REPLICAS } else { wanted };
        self.names.entry(replicas).or_default().push(name);
    }

    /// Returns lines that say how Podward is started again, or nothing if there was no Deployment.
    ///
    /// The services come first: `helm upgrade` may leave them at zero, and without them nobody completes the webhook
    /// configurations that it restores.
    pub(super) fn way_back(&self) -> String {
        let mut text = String::new();
        for (replicas, names) in &self.names {
            let (namespace, names) = (&self.namespace, names.join(" "));
            let _ = writeln!(text, "  kubectl -n {namespace} scale deployment {names} --replicas={replicas}");
        }
        if text.is_empty() {
            return text;
        }
        format!(
            "to start Podward again:\n{text}then run helm upgrade to restore the webhook configurations and \
             ValidatingAdmissionPolicyBinding {POLICY_BINDING}\n"
        )
    }
}

pub(super) fn is_scaled_down(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let status = deployment.status.as_ref();
    let observed = status.and_then(|status| status.observed_generation);
    let replicas = status.and_then(|status| status.replicas).unwrap_or(0);
    wanted == Some(0) && observed >= deployment.metadata.generation && replicas == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn podward_is_started_again_with_the_replicas_that_it_had() {
        let mut stopped = StoppedServices::new("ours");
        assert_eq!(stopped.way_back(), "");
        for (name, replicas) in [("a", 2), ("b", 3), ("scaled-down-before", 0)] {
            let found = json!({"spec": {"replicas": replicas, "selector": {}, "template": {}}});
            stopped.add(name, &serde_json::from_value(found).unwrap());
        }
        assert_eq!(
            stopped.way_back(),
            "to start Podward again:\n  \
             kubectl -n ours scale deployment a scaled-down-before --replicas=2\n  \
             kubectl -n ours scale deployment b --replicas=3\n\
             then run helm upgrade to restore the webhook configurations and ValidatingAdmissionPolicyBinding \
             podward-deletion-requests\n"
        );
    }
}
