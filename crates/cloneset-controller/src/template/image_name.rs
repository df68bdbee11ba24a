//! Names of images.

use crate::pod::ContainerStatus;

/// Returns true if the status says that the container runs the image with this name.
///
/// Runtimes report one of the names of an image, so false proves nothing.
pub(super) fn runs(status: &ContainerStatus, image: &str) -> bool {
    let wanted = full_name(image);
    if full_name(&status.image) == wanted {
        return true;
    }
    let digest = |name: &str| name.split_once('@').map(|(_, digest)| digest.to_owned());
    digest(&wanted).is_some_and(|wanted| digest(&status.image_id).is_some_and(|it| it == wanted))
}

/// Returns the name with its registry, and with a tag or a digest.
fn full_name(image: &str) -> String {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let path_start = name.rfind('/').map_or(0, |it| it + 1);
    let tag_start = name.rfind(':').filter(|it| *it >= path_start);
    let (name, tag) = match tag_start.and_then(|at| name.split_at_checked(at)) {
        Some((name, tag)) => (name, tag.trim_start_matches(':')),
        None => (name, "latest"),
    };
    let is_registry = |it: &str| it.contains(['.', ':']) || it == "localhost";
    let name = match name.split_once('/') {
        Some((registry, path)) if is_registry(registry) => match registry {
            "docker.io" | "index.docker.io" if !path.contains('/') => format!("docker.io/library/{path}"),
            "index.docker.io" => format!("docker.io/{path}"),
            _ => name.to_owned(),
        },
        Some(_) => format!("docker.io/{name}"),
        None => format!("docker.io/library/{name}"),
    };
    match digest {
        Some(digest) => format!("{name}@{digest}"),
        None => format!("{name}:{tag}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_image_has_several_names() {
        for (short, full) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("nginx:1", "docker.io/library/nginx:1"),
            ("docker.io/nginx", "docker.io/library/nginx:latest"),
            ("index.docker.io/a/b", "docker.io/a/b:latest"),
            ("a/b:1", "docker.io/a/b:1"),
            ("localhost/a", "localhost/a:latest"),
            ("registry:5000/a", "registry:5000/a:latest"),
            ("registry.example.com/a/b:1@sha256:12", "registry.example.com/a/b@sha256:12"),
        ] {
            assert_eq!(full_name(short), full);
            assert_eq!(full_name(full), full);
        }
    }

    #[test]
    fn a_digest_is_the_image() {
        let status = ContainerStatus {
            image: "docker.io/library/nginx:1".to_owned(),
            image_id: "docker.io/library/nginx@sha256:12".to_owned(),
            ..ContainerStatus::default()
        };
        assert!(runs(&status, "nginx:1"));
        assert!(runs(&status, "mirror.example.com/nginx@sha256:12"));
        assert!(!runs(&status, "nginx@sha256:13"));
        assert!(!runs(&status, "nginx:2"));
        assert!(!runs(&ContainerStatus::default(), "nginx"));
    }

    proptest! {
        #[test]
        fn no_name_panics(image in "[a-z:/@.ä]{0,30}|.*") {
            full_name(&image);
        }
    }
}
