//! The secret in the paths of the webhooks.
//!
//! The API server does not authenticate to webhooks by default: whoever reaches their port can send a forged review.
//! So the path of every entry of the webhook configurations begins with a random secret, as in `/<secret>/delete`. Only
//! the API server and the readers of the webhook configurations know it, and the webhooks answer 404 to all other
//! paths.
//!
//! ```text
//!  Secret podward-webhook-path: the current secret, the next one, the previous one
//!     │ current                                       │ all three
//!     ▼                                               ▼
//!  path of the entries of both configurations      accepted by the webhooks
//! ```
//!
//! # Guarantees
//!
//! A property test checks them with replicas, webhooks and API servers that lag behind:
//!
//! - A webhook that knows a version of the Secret of at most [`RotationTimes::overlap`] ago accepts every path that an
//!   API server uses which knows a version of the configurations of at most the overlap ago.
//! - At most three secrets are accepted.
//! - While a replica runs and the API server takes its writes, a secret is accepted for little longer than the interval
//!   and three overlaps.
//! - Without a stored secret, nothing is accepted.
//!
//! There is one case with a gap: the Secret is lost and no entry has a path with a secret any more. The new secret is
//! then used at once, and webhooks refuse reviews until they have read it.

mod invalid;
mod redaction;
mod rotation;
mod secret;
mod stored;

pub use invalid::InvalidPathSecret;
pub use redaction::without_webhook_secrets;
pub use rotation::{PathRotation, RotationTimes, rotate};
pub use secret::{PathSecret, split};
pub use stored::{RetiringSecret, UpcomingSecret, WebhookPathState};

/// The name of the Secret.
pub const WEBHOOK_PATH_SECRET: &str = "podward-webhook-path";

/// The entries of both webhook configurations, by name, and the routes of the webhooks that they call. The component
/// that writes the paths and the webhooks share this table.
pub const ROUTES: [(&str, &str); 13] = [
    ("create.mutating.podward.io", "/mutate"),
    ("inject.mutating.podward.io", "/inject"),
    ("update.mutating.podward.io", "/mutate"),
    ("status.mutating.podward.io", "/mutate"),
    ("create.validating.podward.io", "/validate"),
    ("update.validating.podward.io", "/validate"),
    ("rules.validating.podward.io", "/rules"),
    ("bindings.validating.podward.io", "/bindings"),
    ("registries.validating.podward.io", "/registries"),
    ("delete.validating.podward.io", "/delete"),
    ("delete-from-cloneset.validating.podward.io", "/delete"),
    ("eviction.validating.podward.io", "/evict"),
    ("eviction-elsewhere.validating.podward.io", "/evict"),
];

/// Returns the route of the entry `name` of a webhook configuration, for example `/mutate`. `None` if Podward has no
/// such entry.
#[must_use]
pub fn route_of(name: &str) -> Option<&'static str> {
    ROUTES.iter().find(|(entry, _)| *entry == name).map(|(_, route)| *route)
}
