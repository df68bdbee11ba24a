//! Checks that nobody but the API server can send reviews: the paths of the webhooks contain a secret, and the webhooks
//! answer 404 to paths without it.

use anyhow::Result;
use hyper::Request;
use podward_core::webhook_path::{PathSecret, route_of};

use super::configurations::{self, WebhookConfiguration};
use super::finding::{Finding, is_denied};
use super::target::DoctorTarget;

/// Routes of each webhook that are asked for without the secret.
const PLAIN: [(&str, &str); 3] =
    [("mutating-webhook", "/mutate"), ("validating-webhook", "/delete"), ("validating-webhook", "/evict")];
/// The answer of earlier versions to a path without the secret. Now it has no text. An API server's own 404 has one.
const NOTHING: &str = "nothing is served here";

pub(super) async fn check(target: &DoctorTarget) -> Result<Vec<Finding>> {
    let found = configurations::list(&target.client).await?;
    let mut findings = judge_paths(&target.manifests.webhooks, &found);
    for (service, route) in PLAIN {
        let answer = ask(target, service, route).await?;
        findings.push(judge_answer(service, route, &answer));
    }
    Ok(findings)
}

/// Checks the paths in the webhook configurations. No finding contains a path.
fn judge_paths(expected: &[WebhookConfiguration], found: &[WebhookConfiguration]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let ours = found.iter().filter(|found| expected.iter().any(|ours| ours.name == found.name));
    for (configuration, hook) in ours.flat_map(|found| found.hooks.iter().map(move |hook| (found, hook))) {
        // Others are reported by the check of the webhook configurations.
        let Some(route) = route_of(&hook.name).filter(|_| hook.service.is_some()) else { continue };
        if hook.path.as_deref().and_then(|path| PathSecret::of_path(path, route)).is_none() {
            findings.push(Finding::failed(
                format!(
                    "{} of {} has a path without the secret: the webhook answers 404, or it accepts forged reviews \
                     from everybody who reaches its port",
                    hook.name, configuration.name
                ),
                "the lifecycle-controller (--webhook-paths) writes the paths, and its log says why it does not; if \
                 manifests set clientConfig.service.path, remove it there",
            ));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok("the paths of all webhooks contain a secret"));
    }
    findings
}

/// The answer to a request without the secret.
#[derive(Debug)]
enum PlainAnswer {
    /// The status and the text of the webhook, or of an API server that could not reach it.
    Status(u16, String),
    /// The user may not send requests through the API server.
    Denied,
}

/// Asks a webhook for a route without the secret, through the API server. GET has no effect on any version.
async fn ask(target: &DoctorTarget, service: &str, route: &str) -> Result<PlainAnswer> {
    let path = format!("/api/v1/namespaces/{}/services/https:{service}:443/proxy{route}", target.namespace);
    match target.client.request_text(Request::get(path).body(Vec::new())?).await {
        Ok(text) => Ok(PlainAnswer::Status(200, text)),
        Err(error) if is_denied(Some(&error)) => Ok(PlainAnswer::Denied),
        Err(kube::Error::Api(status)) => Ok(PlainAnswer::Status(status.code, status.message)),
        Err(error) => Err(error.into()),
    }
}

fn judge_answer(service: &str, route: &str, answer: &PlainAnswer) -> Finding {
    match answer {
        PlainAnswer::Status(404, text) if text.is_empty() || text.contains(NOTHING) => {
            Finding::ok(format!("the {service} answers 404 to {route} without the secret"))
        }
        PlainAnswer::Denied => Finding::skipped(format!(
            "the {service} was not asked for {route} without the secret: that needs the right to use services/proxy"
        )),
        // The API server itself answers that there is no Service, no endpoint, or no connection.
        PlainAnswer::Status(404 | 500.., _) => Finding::skipped(format!(
            "the {service} could not be asked for {route} without the secret: the API server did not reach it, or it \
             requires a client certificate"
        )),
        PlainAnswer::Status(code, _) => Finding::failed(
            format!("the {service} answers {code} to {route} without the secret: it accepts forged reviews"),
            "all its pods must have the version of this plugin: run helm upgrade, or look at the pods that are left",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingLevel;
    use super::super::manifests::ExpectedManifests;
    use super::*;

    /// Returns the expected configurations, and the same with secret paths.
    fn installed() -> (Vec<WebhookConfiguration>, Vec<WebhookConfiguration>) {
        let expected = ExpectedManifests::read().unwrap().webhooks;
        let mut found = expected.clone();
        for hook in found.iter_mut().flat_map(|found| &mut found.hooks) {
            let route = route_of(&hook.name).unwrap_or_else(|| panic!("no route of {}", hook.name));
            hook.path = Some(PathSecret::of_random([0xab; 32]).path(route));
        }
        (expected, found)
    }

    /// The lifecycle-controller knows the route of each entry of the chart, and the chart sets no path.
    #[test]
    fn the_chart_leaves_all_paths_to_the_lifecycle_controller() {
        let (expected, found) = installed();
        assert!(expected.iter().flat_map(|expected| &expected.hooks).all(|hook| hook.path.is_none()));
        let count = found.iter().map(|found| found.hooks.len()).sum::<usize>();
        assert_eq!(count, podward_core::webhook_path::ROUTES.len());
        let findings = judge_paths(&expected, &found);
        assert!(findings.len() == 1 && findings[0].level == FindingLevel::Ok, "{findings:?}");
    }

    #[test]
    fn a_webhook_reachable_without_the_secret_path_is_reported() {
        let (expected, found) = installed();
        let secret = PathSecret::of_random([0xab; 32]);
        for path in
            [None, Some("/delete".to_owned()), Some(secret.path("/evict")), Some("//delete".to_owned())]
        {
            let mut found = found.clone();
            let hooks = found.iter_mut().flat_map(|found| &mut found.hooks);
            for hook in hooks.filter(|hook| hook.name.starts_with("delete.")) {
                hook.path.clone_from(&path);
            }
            let findings = judge_paths(&expected, &found);
            assert_eq!(findings.len(), 1, "{findings:?}");
            let words = "delete.validating.podward.io of podward-validating has a path without the secret";
            assert!(findings[0].level == FindingLevel::Failed && findings[0].what.contains(words));
            assert!(!format!("{findings:?}").contains("abab"), "{findings:?}");
        }
    }

    #[test]
    fn only_the_webhooks_own_404_shows_that_the_secret_is_needed() {
        let level = |answer| judge_answer("validating-webhook", "/delete", &answer).level;
        let status = |code, text: &str| PlainAnswer::Status(code, text.to_owned());
        assert_eq!(level(status(404, "")), FindingLevel::Ok);
        assert_eq!(level(status(404, "nothing is served here\n")), FindingLevel::Ok);
        assert_eq!(level(status(405, "a review must be sent by POST")), FindingLevel::Failed);
        assert_eq!(level(status(200, "")), FindingLevel::Failed);
        assert_eq!(level(status(404, "services \"validating-webhook\" not found")), FindingLevel::Skipped);
        assert_eq!(level(status(503, "no endpoints available")), FindingLevel::Skipped);
        assert_eq!(level(PlainAnswer::Denied), FindingLevel::Skipped);
    }
}
