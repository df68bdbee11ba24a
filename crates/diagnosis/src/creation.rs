//! Why a workload cannot create its pods.

use k8s_openapi::api::core::v1::Event;
use podward_core::webhook_path::without_webhook_secrets;

use crate::cause::{Case, Cause};
use crate::events::{PodEvents, first_seen, message as message_of, shown};
use crate::words::{between, shortened};

/// Returns the cause in a message of the API server about a pod that it refused, as controllers store it in events and in
/// the condition ReplicaFailure. `namespace` and `workload` (`deployment/web`) are for the next command.
///
/// The texts are those of Kubernetes 1.33 to 1.37: plugin/pkg/admission, apiserver/pkg/admission/plugin/webhook.
#[must_use]
pub fn refused(message: &str, namespace: &str, workload: &str) -> Cause {
    let message = &without_webhook_secrets(message);
    let kubectl = |rest: &str| format!("kubectl -n {namespace} {rest}");
    let edit = kubectl(&format!("edit {workload}"));
    let text = message.replace("\\\"", "\"");
    let cause = if let Some(rest) = after(&text, "exceeded quota: ") {
        let quota = rest.split(',').next().unwrap_or_default().trim();
        let numbers = rest.split_once(", ").map(|(_, numbers)| numbers).unwrap_or_default();
        let what =
            format!("cannot create pods: ResourceQuota {quota} is exhausted ({})", shortened(numbers, 200));
        Cause::new(Case::Quota, format!("ResourceQuota {namespace}/{quota}"), what)
            .next(kubectl(&format!("describe resourcequota {quota}")))
    } else if let Some(rest) = after(&text, "failed quota: ") {
        let quota = rest.split(':').next().unwrap_or_default().trim();
        let missing = rest.split_once("must specify ").map(|(_, rest)| rest).unwrap_or(rest);
        let what = format!(
            "cannot create pods: ResourceQuota {quota} wants requests or limits that the pods lack ({})",
            shortened(missing, 200)
        );
        Cause::new(Case::Quota, format!("ResourceQuota {namespace}/{quota}"), what).next(edit)
    } else if let Some(rest) = after(&text, "violates PodSecurity ") {
        let level = rest.split(": ").next().unwrap_or_default().trim_matches('"');
        let why = rest.split_once(": ").map(|(_, why)| why).unwrap_or_default();
        let what = format!("cannot create pods: Pod Security ({level}) forbids {}", shortened(why, 300));
        Cause::new(Case::PodSecurity, format!("namespace {namespace}"), what).next(edit)
    } else if let Some(rest) = after(&text, "failed calling webhook ") {
        let name = between(rest, "\"", "\"").unwrap_or_default();
        let url = between(rest, "Post \"", "\"").unwrap_or_default();
        let why = rest.rsplit("\": ").next().unwrap_or_default();
        let (place, next) = match service(url) {
            Some((service, of)) => (
                format!(" (Service {of}/{service})"),
                format!("kubectl -n {of} get endpointslices -l kubernetes.io/service-name={service}"),
            ),
            None => (
                url.split('?')
                    .next()
                    .filter(|url| !url.is_empty())
                    .map(|url| format!(" ({url})"))
                    .unwrap_or_default(),
                "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations".to_owned(),
            ),
        };
        let what = format!(
            "cannot create pods: admission webhook {name}{place} does not answer: {}",
            shortened(why, 200)
        );
        Cause::new(Case::WebhookFailed, format!("webhook {name}"), what).next(next)
    } else if let Some(rest) = after(&text, "admission webhook ") {
        let name = between(rest, "\"", "\"").unwrap_or_default();
        let why = rest.split_once("denied the request").map(|(_, why)| why).unwrap_or_default();
        let why = shortened(why.trim_start_matches([':', ' ']), 300);
        let what = format!("cannot create pods: admission webhook {name} denies them: {why}");
        Cause::new(Case::WebhookDenied, format!("webhook {name}"), what).next(edit)
    } else if let Some(rest) = after(&text, "ValidatingAdmissionPolicy '") {
        let (name, rest) = rest.split_once('\'').unwrap_or((rest, ""));
        let why = rest.split_once("denied request: ").map(|(_, why)| why).unwrap_or_default();
        let what = format!(
            "cannot create pods: ValidatingAdmissionPolicy {name} denies them: {}",
            shortened(why, 300)
        );
        Cause::new(Case::PolicyDenied, format!("ValidatingAdmissionPolicy {name}"), what).next(edit)
    } else if ["usage per Container", "usage per Pod", "limit to request ratio"]
        .iter()
        .any(|part| text.contains(part))
    {
        let rules = text.split(" is forbidden: ").nth(1).unwrap_or(&text);
        let what = format!(
            "cannot create pods: a LimitRange forbids it: {}",
            shortened(rules.trim_matches(['[', ']']), 300)
        );
        Cause::new(Case::LimitRange, format!("LimitRange in {namespace}"), what)
            .next(kubectl("describe limitrange"))
    } else if text.contains("serviceaccount \"") && text.contains("not found") {
        let account = between(&text, "serviceaccount \"", "\"").unwrap_or_default();
        let what = format!("cannot create pods: ServiceAccount {account} does not exist");
        Cause::new(Case::MissingServiceAccount, format!("ServiceAccount {namespace}/{account}"), what)
            .next(kubectl(&format!("create serviceaccount {account}")))
    } else {
        let what = format!("cannot create pods: {}", shortened(&text, 300));
        Cause::new(Case::CreationFailed, format!("{workload} in {namespace}"), what).next(edit)
    };
    cause.evidence([shortened(message, 500)])
}

/// Returns the refusal in the newest of the workload's events about a pod that could not be created.
#[must_use]
pub fn newest_refusal(events: Vec<Event>, namespace: &str, workload: &str) -> Option<Cause> {
    let events = PodEvents::new(events);
    let event = events.newest(&["FailedCreate"])?;
    let cause = refused(message_of(event), namespace, workload);
    Some(Cause { evidence: vec![shown(event)], ..cause }.since(first_seen(event)))
}

fn after<'t>(text: &'t str, start: &str) -> Option<&'t str> {
    text.split_once(start).map(|(_, rest)| rest)
}

/// Returns the Service and its namespace in the URL of a webhook: `https://NAME.NAMESPACE.svc:443/path`.
fn service(url: &str) -> Option<(&str, &str)> {
    let host = url.strip_prefix("https://")?.split(['/', ':']).next()?;
    let mut parts = host.split('.');
    let (name, namespace, svc) = (parts.next()?, parts.next()?, parts.next()?);
    (svc == "svc").then_some((name, namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_names_who_refuses() {
        let webhook = r#"Internal error occurred: failed calling webhook "check.shop.svc": failed to call webhook: Post "https://check.shop.svc:443/v?timeout=1s": no endpoints available for service "check""#;
        for (message, case, words, next) in [
            (
                r#"pods "web-x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2"#,
                Case::Quota,
                "ResourceQuota small is exhausted (requested: pods=1, used: pods=2, limited: pods=2)",
                "kubectl -n shop describe resourcequota small",
            ),
            (
                r#"pods "web-x" is forbidden: failed quota: cpu: must specify limits.cpu for: server"#,
                Case::Quota,
                "ResourceQuota cpu wants requests or limits that the pods lack (limits.cpu for: server)",
                "kubectl -n shop edit deployment/web",
            ),
            (
                r#"pods "web-x" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false"#,
                Case::PodSecurity,
                "Pod Security (restricted:latest) forbids allowPrivilegeEscalation != false",
                "kubectl -n shop edit deployment/web",
            ),
            (
                r#"admission webhook "policy.example.com" denied the request: no owner label"#,
                Case::WebhookDenied,
                "admission webhook policy.example.com denies them: no owner label",
                "kubectl -n shop edit deployment/web",
            ),
            (
                webhook,
                Case::WebhookFailed,
                "webhook check.shop.svc (Service shop/check) does not answer: no endpoints available",
                "kubectl -n shop get endpointslices -l kubernetes.io/service-name=check",
            ),
            (
                r#"pods "web-x" is forbidden: maximum memory usage per Container is 64Mi, but limit is 1Gi"#,
                Case::LimitRange,
                "a LimitRange forbids it: maximum memory usage per Container is 64Mi, but limit is 1Gi",
                "kubectl -n shop describe limitrange",
            ),
            (
                r#"pods "web-" is forbidden: error looking up service account shop/robot: serviceaccount "robot" not found"#,
                Case::MissingServiceAccount,
                "ServiceAccount robot does not exist",
                "kubectl -n shop create serviceaccount robot",
            ),
            (
                r#"pods "web-x" is forbidden: ValidatingAdmissionPolicy 'owner' with binding 'owner' denied request: no owner label"#,
                Case::PolicyDenied,
                "ValidatingAdmissionPolicy owner denies them: no owner label",
                "kubectl -n shop edit deployment/web",
            ),
            (
                "something else",
                Case::CreationFailed,
                "cannot create pods: something else",
                "kubectl -n shop edit deployment/web",
            ),
        ] {
            let cause = refused(message, "shop", "deployment/web");
            assert_eq!(cause.case, case, "{message}");
            assert!(cause.what.contains(words), "{} lacks {words}", cause.what);
            assert_eq!(cause.next, next);
        }
    }

    #[test]
    fn secrets_of_webhook_paths_are_not_shown() {
        let secret = "0123456789abcdef".repeat(4);
        let failed = format!(
            "Internal error occurred: failed calling webhook \"pod.mutating.podward.io\": failed to call webhook: Post \
             \"https://mutating-webhook.podward-system.svc:443/{secret}/mutate?timeout=10s\": EOF"
        );
        let event = Event {
            reason: Some("FailedCreate".to_owned()),
            message: Some(failed.clone()),
            ..Event::default()
        };
        let of_event = newest_refusal(vec![event], "shop", "statefulset/web").unwrap();
        for cause in [refused(&failed, "shop", "deployment/web"), of_event] {
            let shown = format!("{cause:?}");
            assert!(shown.contains("/<secret>/mutate") && !shown.contains(&secret), "{shown}");
        }
    }
}
