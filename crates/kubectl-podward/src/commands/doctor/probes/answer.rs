//! What the API server's answer to a dry run says of the webhooks.

use super::super::finding::Finding;
use super::Outcome;

/// The webhooks that the probes come to.
pub(super) const MUTATING: &str = "create.mutating.podward.io";
pub(super) const VALIDATING: &str = "create.validating.podward.io";

/// Of the pod that is as it should be.
pub(super) fn mutating(good: &Outcome, namespace: &str) -> Finding {
    match good {
        Outcome::Made { gated: true } => {
            Finding::ok("a new pod got its readiness gate: the mutating-webhook answers")
        }
        Outcome::Made { gated: false } => {
            past("mutating-webhook", "a new pod got no readiness gate", namespace)
        }
        // The mutating one comes first, but with `Ignore` that doesn't say that it answered.
        Outcome::Refused(words) if called(words) == Some(VALIDATING) => Finding::skipped(
            "what the mutating-webhook does is seen only once the validating-webhook answers",
        ),
        Outcome::Refused(words) => refused("mutating-webhook", MUTATING, words, namespace),
    }
}

/// Of the pod that is never taken.
pub(super) fn validating(bad: &Outcome, namespace: &str) -> Finding {
    match bad {
        Outcome::Made { .. } => {
            past("validating-webhook", "a pod that breaks the protocol was let through", namespace)
        }
        Outcome::Refused(words) if denied(words) == Some(VALIDATING) => {
            Finding::ok("a pod that breaks the protocol was refused: the validating-webhook answers")
        }
        Outcome::Refused(words) if called(words) == Some(MUTATING) => {
            Finding::skipped("the validating-webhook is asked only once the mutating-webhook answers")
        }
        Outcome::Refused(words) => refused("validating-webhook", VALIDATING, words, namespace),
    }
}

fn past(service: &str, what: &str, namespace: &str) -> Finding {
    Finding::failed(
        format!("{what}: the {service} was not asked, or didn't answer and its failurePolicy is Ignore"),
        format!(
            "see what failed above; if nothing did, namespace {namespace} may be left out by its labels, or the API server's \
             log says why the call failed"
        ),
    )
}

fn refused(service: &str, hook: &str, words: &str, namespace: &str) -> Finding {
    if called(words) != Some(hook) {
        return Finding::failed(
            format!("the {service} could not be asked: the pod was refused by something else: {words}"),
            format!(
                "give a namespace where pods may be created: --probe-namespace (now {namespace}), or the chart's doctor.probeNamespace"
            ),
        );
    }
    let (why, next) = explain(words, service);
    Finding::failed(format!("the API server can't call the {service}: {why} ({})", cause(words)), next)
}

/// The webhook that could not be called, as in: failed calling webhook "NAME": ...
fn called(words: &str) -> Option<&str> {
    quoted_after(words, "failed calling webhook \"")
}

/// The webhook that said no, as in: admission webhook "NAME" denied the request: ...
fn denied(words: &str) -> Option<&str> {
    quoted_after(words, "admission webhook \"")
        .filter(|name| words.contains(&format!("\"{name}\" denied the request")))
}

fn quoted_after<'a>(words: &'a str, before: &str) -> Option<&'a str> {
    words.split_once(before)?.1.split('"').next()
}

/// The end of the API server's words, which is where the reason is.
fn cause(words: &str) -> &str {
    words.rsplit_once("\": ").map_or(words, |(_, cause)| cause)
}

/// What went wrong with a call, and what to do.
fn explain(words: &str, service: &str) -> (&'static str, String) {
    let has = |parts: &[&str]| parts.iter().any(|part| words.contains(part));
    let pods = format!("look at the pods of the {service} (above: services)");
    if has(&["no endpoints available"]) {
        ("none of its replicas is ready", pods)
    } else if has(&["not found"]) && words.contains("service \"") {
        ("its Service is gone", "helm upgrade installs what is missing".to_owned())
    } else if has(&["unknown authority", "certificate is not trusted"]) {
        let next = "the caBundle has to be that of whoever signed the certificate: see what certificates says below; the \
                    lifecycle-controller, or cert-manager, writes it";
        ("its certificate was signed by somebody else than the caBundle says", next.to_owned())
    } else if has(&["expired or is not yet valid"]) {
        let next = "renewing has failed: the log of the lifecycle-controller, or of cert-manager, says why; clocks that differ \
                    do the same";
        ("its certificate is not valid now", next.to_owned())
    } else if has(&["certificate is valid for", "doesn't contain any IP SANs", "not valid for any names"]) {
        ("its certificate is for another name", format!("delete the Secret {service}-tls: it is made anew"))
    } else if has(&["connection refused"]) {
        ("nobody listens there", pods)
    } else if has(&["deadline exceeded", "i/o timeout", "Client.Timeout", "no route to host"]) {
        let next = "the control plane has to reach pods at port 9443: look at network policies, firewalls and, on managed \
                    clusters, the rules for webhooks; or the webhook is overloaded";
        ("there was no answer in time", next.to_owned())
    } else if has(&["no such host"]) {
        ("its Service can't be resolved", "see why the API server can't resolve names of Services".to_owned())
    } else {
        ("the call failed", pods)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Level;
    use super::*;

    fn failure(hook: &str, cause: &str) -> Outcome {
        let url = "https://x.podward-system.svc:443/mutate?timeout=2s";
        Outcome::Refused(format!(
            "Internal error occurred: failed calling webhook \"{hook}\": failed to call webhook: Post \"{url}\": {cause}"
        ))
    }

    #[test]
    fn webhooks_that_answer_are_well() {
        assert_eq!(mutating(&Outcome::Made { gated: true }, "default").level, Level::Ok);
        let denial =
            format!("admission webhook \"{VALIDATING}\" denied the request: annotation must be JSON");
        assert_eq!(validating(&Outcome::Refused(denial), "default").level, Level::Ok);
    }

    #[test]
    fn a_pod_that_nobody_looked_at_is_a_failure() {
        let found = mutating(&Outcome::Made { gated: false }, "default");
        assert!(found.level == Level::Failed && found.what.contains("no readiness gate"), "{found:?}");
        let found = validating(&Outcome::Made { gated: true }, "default");
        assert!(found.level == Level::Failed && found.what.contains("was let through"), "{found:?}");
    }

    #[test]
    fn calls_that_fail_are_explained() {
        for (cause, words) in [
            ("no endpoints available for service \"x\"", "none of its replicas is ready"),
            ("service \"x\" not found", "its Service is gone"),
            (
                "tls: failed to verify certificate: x509: certificate signed by unknown authority",
                "somebody else than the caBundle",
            ),
            ("x509: certificate has expired or is not yet valid: current time 2030", "not valid now"),
            ("x509: certificate is valid for a.b.svc, not x.podward-system.svc", "for another name"),
            ("dial tcp 10.0.0.1:9443: connect: connection refused", "nobody listens there"),
            ("context deadline exceeded", "no answer in time"),
            (
                "net/http: request canceled (Client.Timeout exceeded while awaiting headers)",
                "no answer in time",
            ),
            ("dial tcp: lookup x: no such host", "can't be resolved"),
            ("EOF", "the call failed"),
        ] {
            for found in
                [mutating(&failure(MUTATING, cause), "n"), validating(&failure(VALIDATING, cause), "n")]
            {
                assert_eq!(found.level, Level::Failed);
                assert!(found.what.contains(words) && found.next.is_some(), "{found:?}");
                assert!(found.what.ends_with(&format!("({cause})")), "{found:?}");
            }
        }
    }

    #[test]
    fn one_webhook_is_not_blamed_for_the_other() {
        let first = failure(MUTATING, "EOF");
        assert_eq!(validating(&first, "default").level, Level::Skipped);
        assert_eq!(mutating(&failure(VALIDATING, "EOF"), "default").level, Level::Skipped);
    }

    #[test]
    fn a_pod_that_others_refuse_says_so() {
        let words = "admission webhook \"pods.others.example\" denied the request: no";
        for found in [
            mutating(&Outcome::Refused(words.to_owned()), "here"),
            validating(&Outcome::Refused("pods is forbidden".to_owned()), "here"),
        ] {
            assert!(
                found.level == Level::Failed && found.what.contains("refused by something else"),
                "{found:?}"
            );
            assert!(found.next.unwrap().contains("--probe-namespace (now here)"));
        }
    }
}
