//! The names of Podward's services.

use serde_json::Value;

/// The programs. Their images, Deployments, pods and Leases have these names, with something after a dash.
pub(super) const PROGRAMS: [&str; 8] = [
    "cloneset-controller",
    "kubectl-podward",
    "lifecycle-controller",
    "mutating-webhook",
    "node-agent",
    "service-discovery-bridge",
    "traffic-controller",
    "validating-webhook",
];
/// What the names of the chart's jobs begin with.
const JOBS: &str = "podward";

/// Returns whether an object has the name of a service, or is an event about an object that has.
pub(super) fn is_about_service(object: &Value) -> bool {
    let name = object["involvedObject"]["name"].as_str().or_else(|| object["metadata"]["name"].as_str());
    name.is_some_and(is_of_service)
}

fn is_of_service(name: &str) -> bool {
    PROGRAMS.iter().chain([&JOBS]).any(|service| {
        name.strip_prefix(service).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

/// Returns whether an image is one of Podward's, by the last part of its name.
pub(super) fn is_our_image(image: &str) -> bool {
    let image = image.split('@').next().unwrap_or_default();
    let name = image.rsplit('/').next().and_then(|last| last.split(':').next());
    name.is_some_and(|name| PROGRAMS.contains(&name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RENDERED: [&str; 4] = [
        include_str!("../../../../../tests/charts/cases/default/rendered.yaml"),
        include_str!("../../../../../tests/charts/cases/cloneset-controller/rendered.yaml"),
        include_str!("../../../../../tests/charts/cases/node-agent/rendered.yaml"),
        include_str!("../../../../../tests/charts/cases/service-discovery-bridge/rendered.yaml"),
    ];

    #[test]
    fn all_workloads_of_the_chart_are_known_and_labelled() {
        for rendered in RENDERED {
            let documents: Vec<Value> = serde_saphyr::from_multiple(rendered).unwrap();
            for document in &documents {
                let kind = document["kind"].as_str().unwrap_or_default();
                if !["Deployment", "DaemonSet", "Job"].contains(&kind) {
                    continue;
                }
                assert!(is_about_service(document), "{kind} {}", document["metadata"]["name"]);
                let template = &document["spec"]["template"];
                assert_eq!(template["metadata"]["labels"]["app.kubernetes.io/part-of"], "podward");
                let image = template["spec"]["containers"][0]["image"].as_str().unwrap();
                assert!(is_our_image(image), "{image}");
            }
        }
    }

    #[test]
    fn others_are_not_of_podward() {
        let event = |name: &str| json!({"metadata": {"name": "lifecycle-controller.1"}, "involvedObject": {"name": name}});
        assert!(is_about_service(&event("lifecycle-controller-7f8c4d5f95-w8sbm")));
        assert!(!is_about_service(&event("web-0")) && !is_about_service(&event("podwarden-0")));
        assert!(is_about_service(&json!({"metadata": {"name": "service-discovery-bridge-3"}})));
        assert!(!is_our_image("r.example:5000/podward/proxy:1.2"));
        assert!(is_our_image("r.example:5000/other/mutating-webhook@sha256:00"));
    }
}
