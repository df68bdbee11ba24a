//! Images that cannot be pulled.

mod errors;

use crate::cause::{Case, Cause};
use crate::command::Commands;
use crate::events::{first_seen, message, shown};
use crate::snapshot::Snapshot;
use crate::words::{between, shortened};

use crate::pod_view::ContainerView;

pub(super) fn cause(snapshot: &Snapshot, container: &ContainerView<'_>, reason: &str, text: &str) -> Cause {
    let commands = Commands(&snapshot.pod);
    let image = container.status.image.as_str();
    // The reason of a container that backs off may lack the error, which is in the event of the last attempt.
    let failed = snapshot.events.of_container("Failed", "Failed to pull image", container.name());
    let error = failed.map(message).filter(|_| !text.contains("rpc error")).unwrap_or(text);
    let case = match reason {
        "InvalidImageName" | "ErrImageNeverPull" | "SignatureValidationFailed" => Case::ImagePull,
        _ => errors::kind(error, image).unwrap_or(Case::ImagePull),
    };
    let secret = snapshot.events.newest(&["FailedToRetrieveImagePullSecret"]);
    let secret = secret.and_then(|event| between(message(event), "secrets (", ")"));
    let words = container.words();
    let registry = errors::registry(image);
    let (case, what, next) = match (case, secret) {
        (Case::ImageUnauthorized | Case::ImageNotFound, Some(secret)) => (
            Case::MissingPullSecret,
            format!("the image {image} of {words} needs the pull secret {secret}, which does not exist"),
            commands.kubectl(&format!("create secret docker-registry {secret} --docker-server={registry}")),
        ),
        (Case::ImageNotFound, None) => (
            case,
            format!("the image {image} of {words} does not exist"),
            format!("{}; correct the image", commands.edit()),
        ),
        (Case::ImageUnauthorized, None) => (
            case,
            format!("the registry does not let the node pull the image {image} of {words}"),
            format!("{}; check the image and imagePullSecrets", commands.edit()),
        ),
        (Case::ImageRateLimit, _) => (
            case,
            format!("{registry} limits the number of pulls, and refuses the image {image} of {words}"),
            "wait, or pull with credentials (imagePullSecrets) or from a mirror".to_owned(),
        ),
        (Case::ImageRegistryUnreachable, _) => (
            case,
            format!("{registry} cannot be reached for the image {image} of {words}"),
            commands.describe(),
        ),
        _ if reason == "InvalidImageName" => (
            case,
            format!("the image {image} of {words} has an invalid name"),
            format!("{}; correct the image", commands.edit()),
        ),
        _ if reason == "ErrImageNeverPull" => (
            case,
            format!("the image {image} of {words} is not on the node, and imagePullPolicy is Never"),
            format!("{}; change imagePullPolicy, or load the image on the node", commands.edit()),
        ),
        _ => (
            case,
            format!("the image {image} of {words} cannot be pulled: {}", shortened(error, 200)),
            commands.describe(),
        ),
    };
    let first = snapshot.events.of_container("Pulling", "", container.name()).or(failed).and_then(first_seen);
    let evidence =
        [format!("container state {reason}"), failed.map(shown).unwrap_or_else(|| shortened(text, 400))];
    Cause::new(case, format!("image {image}"), what).since(first).next(next).evidence(evidence)
}
