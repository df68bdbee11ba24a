//! Pods that wait for a service registry, through the hook of a DiscoveryBinding.

use jiff::Timestamp;
use kube::ResourceExt;
use podward_api::DiscoveryBinding;

use super::binding_names::{hook_of, registry_of};
use super::report::{RegistryWait, WhyReport};
use crate::commands::doctor::{BindingFacts, binding_findings};

/// Adds the bindings whose hook the message of the report names. `bindings` are those of the pod's namespace, or the reason
/// why they could not be read.
pub(super) fn add_waits(
    report: &mut WhyReport,
    bindings: Result<Vec<DiscoveryBinding>, String>,
    now: Timestamp,
) {
    let bindings = match bindings {
        Ok(bindings) => bindings,
        Err(error) => {
            if report.message.contains(&format!("hook {}.", report.namespace)) {
                let namespace = &report.namespace;
                report.notes.push(format!("the DiscoveryBindings of {namespace} could not be read: {error}"));
            }
            return;
        }
    };
    let about = BindingFacts { registries: None, holders: None, now };
    for binding in bindings {
        let (namespace, name) = (report.namespace.clone(), binding.name_any());
        let hook = hook_of(&namespace, &name);
        if !names_hook(&report.message, &hook) {
            continue;
        }
        let registry = registry_of(&binding);
        let look = format!("kubectl -n {namespace} describe discoverybinding {name}");
        let mut found =
            binding_findings(&binding, &about).into_iter().map(|finding| (finding.what, finding.next));
        let (why, next) = found.next().unwrap_or_else(|| {
            (
                "the binding reports no problem: the registry is being changed, or clients may still use what they have \
                 read; the message above says since when and until when"
                    .to_owned(),
                None,
            )
        });
        report.registries.push(RegistryWait {
            hook,
            binding: format!("{namespace}/{name}"),
            service: binding.spec.service.name.clone(),
            registry,
            why,
            next: next.unwrap_or(look),
        });
    }
}

/// Returns whether a message names the hook, and not only one whose name begins with it.
fn names_hook(message: &str, hook: &str) -> bool {
    let named = format!("hook {hook}");
    let continues = |rest: &str| {
        let mut letters = rest.chars();
        match letters.next() {
            Some('.') => letters.next().is_some_and(char::is_alphanumeric),
            Some(letter) => letter.is_alphanumeric() || letter == '-',
            None => false,
        }
    };
    message.match_indices(&named).any(|(at, _)| !continues(&message[at + named.len()..]))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn binding(name: &str, status: Value) -> DiscoveryBinding {
        serde_json::from_value(json!({
            "apiVersion": "podward.io/v1alpha1", "kind": "DiscoveryBinding",
            "metadata": {"namespace": "shop", "name": name},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "registry": {"connection": {"kind": "Consul", "addresses": ["http://c:8500"]}},
                "service": {"name": "web"}, "port": 80,
            },
            "status": status,
        }))
        .unwrap()
    }

    fn report(message: &str, bindings: Result<Vec<DiscoveryBinding>, String>) -> WhyReport {
        let mut report = WhyReport::new("shop", "web-0", message.to_owned());
        add_waits(&mut report, bindings, "2026-01-01T10:02:00Z".parse().unwrap());
        report
    }

    #[test]
    fn the_binding_of_a_hook_is_named_with_the_problem_of_its_registry() {
        let condition = |kind: &str, status: &str, message: &str| {
            json!({
                "type": kind, "status": status, "reason": "X", "message": message,
                "lastTransitionTime": "2026-01-01T10:01:00Z",
            })
        };
        let down = json!({"conditions": [
            condition("Accepted", "True", ""), condition("Reachable", "False", "http://c:8500: connection refused"),
        ]});
        let bindings = vec![binding("web", down), binding("we", json!({}))];
        let message =
            "operation up (update) drains the pod: hook shop.web: PREPARE since 2026-01-01T10:01:00Z, x";
        let report = report(message, Ok(bindings));
        let [wait] = report.registries.as_slice() else { panic!("{report:?}") };
        assert_eq!((wait.binding.as_str(), wait.registry.as_str()), ("shop/web", "Consul at http://c:8500"));
        let text = report.text(podward_core::UnixNanos(0));
        for line in [
            "hook shop.web is DiscoveryBinding shop/web: service web of Consul at http://c:8500\n",
            "  why:  an address of the registry of DiscoveryBinding shop/web does not answer since 60 s \
             (http://c:8500: connection refused): removals wait\n",
            "  -> kubectl -n shop describe discoverybinding web",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }

    #[test]
    fn a_binding_without_a_problem_is_named_too() {
        let ready = json!({"conditions": [
            {"type": "Accepted", "status": "True", "reason": "X", "message": "",
             "lastTransitionTime": "2026-01-01T10:01:00Z"},
        ]});
        let report = report("waits for hook shop.web.", Ok(vec![binding("web", ready)]));
        assert!(report.registries[0].why.contains("reports no problem"), "{report:?}");
        assert_eq!(report.registries[0].next, "kubectl -n shop describe discoverybinding web");
    }

    #[test]
    fn bindings_that_nobody_waits_for_are_not_shown() {
        let all = || Ok(vec![binding("web", json!({}))]);
        for message in ["the pod is in service", "waits for hook shop.web-2", "waits for hook shop.web.x"] {
            assert!(report(message, all()).registries.is_empty(), "{message}");
        }
        let unread = report("waits for hook shop.web", Err("forbidden".to_owned()));
        assert!(unread.notes[0].ends_with("could not be read: forbidden"), "{unread:?}");
        assert!(report("the pod is in service", Err("forbidden".to_owned())).notes.is_empty());
    }
}
