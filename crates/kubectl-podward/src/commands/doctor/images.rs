//! Checks that images are referenced by digests, which name one content forever. Whoever may write to the registry can
//! make a tag name another content.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;

use super::finding::Finding;
use super::target::DoctorTarget;

/// The registry in `deploy/podward`. It never exists.
const NO_REGISTRY: &str = "registry.invalid/";
/// The tag that container runtimes use if an image has none. It is expected to change.
const LATEST: &str = "latest";
const PIN: &str = "set the value `image` of each of them to its image with @sha256:... (docs/guides/installing.md, \
                   Harden)";

pub(super) async fn check(target: &DoctorTarget) -> Result<Vec<Finding>> {
    let images: Vec<ContainerImage> = target.deployments().await?.iter().flat_map(images).collect();
    Ok(judge(&images))
}

/// The image of a container of a Deployment.
#[derive(Clone, Debug)]
struct ContainerImage {
    deployment: String,
    image: String,
}

/// The way in which an image is referenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageReference {
    /// By its digest.
    Digest,
    /// By a tag, which can be moved.
    Tag,
    /// By the tag `latest`, or without a tag, which means `latest`.
    Latest,
    /// By a registry that cannot exist.
    NoRegistry,
}

fn images(found: &Deployment) -> Vec<ContainerImage> {
    let spec = found.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let containers =
        spec.into_iter().flat_map(|pod| pod.containers.iter().chain(pod.init_containers.iter().flatten()));
    let image = |image: &String| ContainerImage { deployment: found.name_any(), image: image.clone() };
    containers.filter_map(|container| container.image.as_ref()).map(image).collect()
}

fn reference(image: &str) -> ImageReference {
    if image.starts_with(NO_REGISTRY) {
        return ImageReference::NoRegistry;
    }
    if image.contains("@sha256:") {
        return ImageReference::Digest;
    }
    // The port of a registry also follows a colon.
    match image.rsplit('/').next().unwrap_or_default().split_once(':') {
        Some((_, tag)) if tag != LATEST => ImageReference::Tag,
        _ => ImageReference::Latest,
    }
}

fn judge(images: &[ContainerImage]) -> Vec<Finding> {
    let named = |wanted: ImageReference| -> Vec<String> {
        let found = images.iter().filter(|found| reference(&found.image) == wanted);
        found.map(|found| format!("{} ({})", found.deployment, found.image)).collect()
    };
    let mut findings = Vec::new();
    let no_registry = named(ImageReference::NoRegistry);
    if !no_registry.is_empty() {
        findings.push(Finding::failed(
            format!("images of a registry that does not exist: {}", no_registry.join(", ")),
            "set the registry that has your images (docs/guides/installing.md, Without Helm)",
        ));
    }
    let latest = named(ImageReference::Latest);
    if !latest.is_empty() {
        findings.push(Finding::warning(
            format!("images with the tag {LATEST}, so that replicas can differ: {}", latest.join(", ")),
            PIN,
        ));
    }
    let tagged = named(ImageReference::Tag);
    if !tagged.is_empty() {
        findings.push(Finding::warning(
            format!(
                "images referenced by tags, which whoever may write to the registry can move: {}",
                tagged.join(", ")
            ),
            PIN,
        ));
    }
    if findings.is_empty() && !images.is_empty() {
        findings.push(Finding::ok("all images are referenced by digests"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::FindingLevel;
    use super::*;

    fn of(image: &str) -> ContainerImage {
        ContainerImage { deployment: "a".to_owned(), image: image.to_owned() }
    }

    #[test]
    fn only_a_digest_names_one_content() {
        let digest = format!("r.example:5000/podward/a:1.2@sha256:{}", "0".repeat(64));
        assert_eq!(reference(&digest), ImageReference::Digest);
        assert_eq!(reference("r.example:5000/podward/a:1.2"), ImageReference::Tag);
        for image in ["r.example:5000/podward/a", "r.example/podward/a:latest", "a"] {
            assert_eq!(reference(image), ImageReference::Latest, "{image}");
        }
        assert_eq!(reference("registry.invalid/podward/a:1.2"), ImageReference::NoRegistry);
    }

    #[test]
    fn a_tag_that_can_be_moved_is_reported() {
        let digest = format!("r.example/a@sha256:{}", "0".repeat(64));
        let fine = judge(&[of(&digest)]);
        assert!(fine.len() == 1 && fine[0].level == FindingLevel::Ok, "{fine:?}");
        let found = judge(&[of(&digest), of("r.example/a:1.2"), of("r.example/b:latest")]);
        let levels: Vec<_> = found.iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [FindingLevel::Warning, FindingLevel::Warning]);
        assert!(found[0].what.ends_with("can differ: a (r.example/b:latest)"), "{found:?}");
        assert!(found[1].what.ends_with("can move: a (r.example/a:1.2)"), "{found:?}");
        assert_eq!(judge(&[]), []);
    }

    #[test]
    fn manifests_without_a_registry_are_a_failure() {
        let found = judge(&[of("registry.invalid/podward/a:1.2")]);
        assert!(found.len() == 1 && found[0].level == FindingLevel::Failed, "{found:?}");
    }

    #[test]
    fn the_images_of_all_containers_are_checked() {
        let template = json!({"spec": {
            "containers": [{"name": "a", "image": "r/a:1"}, {"name": "sidecar", "image": "r/s:1"}],
            "initContainers": [{"name": "init", "image": "r/i:1"}],
        }});
        let spec = json!({"selector": {}, "template": template});
        let deployment = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
        let found: Vec<String> = images(&deployment).into_iter().map(|found| found.image).collect();
        assert_eq!(found, ["r/a:1", "r/s:1", "r/i:1"]);
    }
}
