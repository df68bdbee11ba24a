//! Derives the state of the webhooks from the API server's answer to a dry run.

use super::super::finding::Finding;
use super::outcome::ProbeOutcome;

/// The webhooks that are called for the probes.
pub(super) const MUTATING: &str = "create.mutating.podward.io";
pub(super) const VALIDATING: &str = "create.validating.podward.io";

/// Checks the mutating webhook by the outcome for the valid pod.
pub(super) fn mutating(good: &ProbeOutcome, namespace: &str) -> Finding {
    match good {
        ProbeOutcome::Created { gated: true } => {
            Finding::ok("a new pod got its readiness gate: the mutating-webhook answers")
        }
        ProbeOutcome::Created { gated: false } => {
            not_called("mutating-webhook", "a new pod got no readiness gate", namespace)
        }
        // The mutating webhook is called first, but with `Ignore` this does not prove that it answered.
        ProbeOutcome::Refused(message) if called(message) == Some(VALIDATING) => {
            Finding::skipped("the mutating-webhook can be tested only when the validating-webhook answers")
        }
        ProbeOutcome::Refused(message) => refused("mutating-webhook", MUTATING, message, namespace),
    }
}

/// Checks the validating webhook by the outcome for the invalid pod.
pub(super) fn validating(bad: &ProbeOutcome, namespace: &str) -> Finding {
    match bad {
        ProbeOutcome::Created { .. } => {
            not_called("validating-webhook", "a pod that breaks the protocol was allowed", namespace)
        }
        ProbeOutcome::Refused(message) if denied(message) == Some(VALIDATING) => {
            Finding::ok("a pod that breaks the protocol was refused: the validating-webhook answers")
        }
        ProbeOutcome::Refused(message) if called(message) == Some(MUTATING) => {
            Finding::skipped("the validating-webhook can be tested only when the mutating-webhook answers")
        }
        ProbeOutcome::Refused(message) => refused("validating-webhook", VALIDATING, message, namespace),
    }
}

fn not_called(service: &str, what: &str, namespace: &str) -> Finding {
    Finding::failed(
        format!("{what}: the {service} was not called, or did not answer and its failurePolicy is Ignore"),
        format!(
            "fix the failures above; if there are none, check whether the labels of namespace {namespace} exclude it, \
             and the log of the API server"
        ),
    )
}

fn refused(service: &str, hook: &str, message: &str, namespace: &str) -> Finding {
    if called(message) != Some(hook) {
        return Finding::failed(
            format!("the {service} could not be tested: the pod was refused for another reason: {message}"),
            format!(
                "set --probe-namespace (now {namespace}), or the chart's doctor.probeNamespace, to a namespace \
                 that allows pods"
            ),
        );
    }
    let (why, next) = explain(message, service);
    Finding::failed(format!("the API server cannot call the {service}: {why} ({})", cause(message)), next)
}

/// Returns the webhook that could not be called, from: failed calling webhook "NAME": ...
fn called(message: &str) -> Option<&str> {
    quoted_after(message, "failed calling webhook \"")
}

/// Returns the webhook that denied the request, from: admission webhook "NAME" denied the request: ...
fn denied(message: &str) -> Option<&str> {
    quoted_after(message, "admission webhook \"")
        .filter(|name| message.contains(&format!("\"{name}\" denied the request")))
}

fn quoted_after<'a>(message: &'a str, before: &str) -> Option<&'a str> {
    message.split_once(before)?.1.split('"').next()
}

/// Returns the reason, which is the end of the API server's message.
fn cause(message: &str) -> &str {
    message.rsplit_once("\": ").map_or(message, |(_, cause)| cause)
}

/// Returns why a call failed, and the next step.
fn explain(message: &str, service: &str) -> (&'static str, String) {
    let has = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    let pods = format!("check the pods of the {service} (see services above)");
    if has(&["no endpoints available"]) {
        ("none of its replicas is ready", pods)
    } else if has(&["not found"]) && message.contains("service \"") {
        ("its Service does not exist", "run helm upgrade to install it".to_owned())
    } else if has(&["unknown authority", "certificate is not trusted"]) {
        let next = "the caBundle must contain the authority that signed the certificate: see certificates below; the \
                    lifecycle-controller, or cert-manager, writes it";
        ("its certificate is not signed by an authority in the caBundle", next.to_owned())
    } else if has(&["expired or is not yet valid"]) {
        let next = "the renewal failed, see the log of the lifecycle-controller, or of cert-manager; or the clocks of \
                    the machines differ";
        ("its certificate is not valid now", next.to_owned())
    } else if has(&["certificate is valid for", "doesn't contain any IP SANs", "not valid for any names"]) {
        (
            "its certificate is for another name",
            format!("delete the Secret {service}-tls: a new one is issued"),
        )
    } else if has(&["connection refused"]) {
        ("no process listens on the port", pods)
    } else if has(&["deadline exceeded", "i/o timeout", "Client.Timeout", "no route to host"]) {
        let next = "the control plane must reach pods at port 9443: check network policies, firewalls and, on managed \
                    clusters, the firewall rules for webhooks; or the webhook is overloaded";
        ("there was no answer in time", next.to_owned())
    } else if has(&["no such host"]) {
        (
            "its Service name cannot be resolved",
            "check why the API server cannot resolve names of Services".to_owned(),
        )
    } else {
        ("the call failed", pods)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::FindingLevel;
    use super::*;

    fn failure(hook: &str, cause: &str) -> ProbeOutcome {
        let url = "https://x.podward-system.svc:443/mutate?timeout=2s";
        ProbeOutcome::Refused(format!(
            "Internal error occurred: failed calling webhook \"{hook}\": failed to call webhook: \
             Post \"{url}\": {cause}"
        ))
    }

    #[test]
    fn webhooks_that_answer_are_ok() {
        assert_eq!(mutating(&ProbeOutcome::Created { gated: true }, "default").level, FindingLevel::Ok);
        let denial =
            format!("admission webhook \"{VALIDATING}\" denied the request: annotation must be JSON");
        assert_eq!(validating(&ProbeOutcome::Refused(denial), "default").level, FindingLevel::Ok);
    }

    #[test]
    fn a_pod_that_no_webhook_checked_is_a_failure() {
        let found = mutating(&ProbeOutcome::Created { gated: false }, "default");
        assert!(found.level == FindingLevel::Failed && found.what.contains("no readiness gate"), "{found:?}");
        let found = validating(&ProbeOutcome::Created { gated: true }, "default");
        assert!(found.level == FindingLevel::Failed && found.what.contains("was allowed"), "{found:?}");
    }

    #[test]
    fn calls_that_fail_are_explained() {
        for (cause, message) in [
            ("no endpoints available for service \"x\"", "none of its replicas is ready"),
            ("service \"x\" not found", "its Service does not exist"),
            (
                "tls: failed to verify certificate: x509: certificate signed by unknown authority",
                "not signed by an authority in the caBundle",
            ),
            ("x509: certificate has expired or is not yet valid: current time 2030", "not valid now"),
            ("x509: certificate is valid for a.b.svc, not x.podward-system.svc", "for another name"),
            ("dial tcp 10.0.0.1:9443: connect: connection refused", "no process listens on the port"),
            ("context deadline exceeded", "no answer in time"),
            (
                "net/http: request canceled (Client.Timeout exceeded while awaiting headers)",
                "no answer in time",
            ),
            ("dial tcp: lookup x: no such host", "cannot be resolved"),
            ("EOF", "the call failed"),
        ] {
            for found in
                [mutating(&failure(MUTATING, cause), "n"), validating(&failure(VALIDATING, cause), "n")]
            {
                assert_eq!(found.level, FindingLevel::Failed);
                assert!(found.what.contains(message) && found.next.is_some(), "{found:?}");
                assert!(found.what.ends_with(&format!("({cause})")), "{found:?}");
            }
        }
    }

    #[test]
    fn a_fault_of_one_webhook_is_not_reported_for_the_other() {
        let first = failure(MUTATING, "EOF");
        assert_eq!(validating(&first, "default").level, FindingLevel::Skipped);
        assert_eq!(mutating(&failure(VALIDATING, "EOF"), "default").level, FindingLevel::Skipped);
    }

    #[test]
    fn a_refusal_by_other_software_is_named() {
        let message = "admission webhook \"pods.others.example\" denied the request: no";
        for found in [
            mutating(&ProbeOutcome::Refused(message.to_owned()), "here"),
            validating(&ProbeOutcome::Refused("pods is forbidden".to_owned()), "here"),
        ] {
            assert!(
                found.level == FindingLevel::Failed && found.what.contains("refused for another reason"),
                "{found:?}"
            );
            assert!(found.next.unwrap().contains("--probe-namespace (now here)"));
        }
    }
}
