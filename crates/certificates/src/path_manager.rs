//! Keeps the secret in the paths of the webhooks: the Secret, and the webhook configurations.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use podward_core::webhook_path::{PathSecret, RotationTimes, WEBHOOK_PATH_SECRET, WebhookPathState, rotate};
use podward_runtime::retry::{ApiCallError, api_call, spread};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::changes::{PathChange, watch_paths};
use crate::manager::{FIELD_MANAGER, labels};
use crate::names::{MUTATING, VALIDATING};
use crate::paths::EntryPaths;
use crate::upkeep::{MAX_INTERVAL, Upkeep, keep_up};

/// Creates and rotates the secret in the paths of the webhooks of a namespace. It works with any issuer of
/// certificates.
///
/// Any number of replicas may run it at the same time. Each decision depends only on the stored objects and the time
/// ([`rotate`]), and the API server rejects a write if the object has changed.
pub struct WebhookPathManager {
    client: Client,
    namespace: String,
    times: RotationTimes,
    /// `None` until the watch has reported the Secret or its absence.
    secret: Option<Option<Secret>>,
    paths: HashMap<&'static str, Option<EntryPaths>>,
}

/// The reason why an object could not be brought up to date. No variant contains a secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebhookPathError {
    #[error("could not {what}: {source}")]
    Api { what: String, source: ApiCallError },
    #[error("could not generate a random secret; check the random generator of the machine")]
    Random,
    #[error("could not build Secret {WEBHOOK_PATH_SECRET}: {0}")]
    Build(serde_json::Error),
}

impl WebhookPathManager {
    /// Returns the manager of the Secret in `namespace`. Start it with [`WebhookPathManager::run`].
    #[must_use]
    pub fn new(client: Client, namespace: &str, times: RotationTimes) -> Self {
        Self { client, namespace: namespace.to_owned(), times, secret: None, paths: HashMap::new() }
    }

    /// Keeps the objects up to date until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let changes = watch_paths(&self.client, &self.namespace);
        keep_up(self, changes, stop).await;
    }

    fn stored(&self) -> Option<WebhookPathState> {
        let data = self.secret.as_ref()?.as_ref()?.data.as_ref()?;
        let get = |key: &str| std::str::from_utf8(&data.get(key)?.0).ok();
        WebhookPathState::read(get)
            .inspect_err(|error| {
                tracing::warn!("Secret {WEBHOOK_PATH_SECRET} can't be used and is written anew: {error}");
            })
            .ok()
    }

    /// Writes the current secret to the entries of both webhook configurations. Returns true if one has changed.
    async fn configure(&mut self, state: &WebhookPathState) -> Result<bool, WebhookPathError> {
        let mut has_changed = false;
        for name in [MUTATING, VALIDATING] {
            let Some(Some(paths)) = self.paths.get(name) else { continue };
            let Some(patch) = paths.patch(state) else { continue };
            tracing::info!(configuration = name, "writing the paths of the webhooks");
            let new = self.patch(name, patch).await?;
            has_changed |= new.is_some();
            self.paths.insert(name, new);
        }
        Ok(has_changed)
    }

    /// Patches the webhook configuration `name`. Returns `None` if it does not exist any more.
    async fn patch(&self, name: &'static str, patch: Value) -> Result<Option<EntryPaths>, WebhookPathError> {
        let what = format!("write the paths of webhook configuration {name}");
        let (parameters, patch) = (
            PatchParams { field_manager: field_manager(), ..PatchParams::default() },
            Patch::Strategic(patch),
        );
        let written = if name == MUTATING {
            let api: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
            api_call(api.patch(name, &parameters, &patch)).await.map(|new| EntryPaths::from(&new))
        } else {
            let api: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
            api_call(api.patch(name, &parameters, &patch)).await.map(|new| EntryPaths::from(&new))
        };
        match written {
            Ok(new) => Ok(Some(new)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(source) => Err(WebhookPathError::Api { what, source }),
        }
    }

    /// Writes `state` to the Secret. Fails with a conflict if the Secret has changed.
    async fn write(&mut self, state: &WebhookPathState) -> Result<(), WebhookPathError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let written = match self.secret.as_ref().and_then(Option::as_ref) {
            Some(known) => {
                let patch = json!({
                    "metadata": {"resourceVersion": known.resource_version()}, "stringData": state.data(),
                });
                let parameters = PatchParams { field_manager: field_manager(), ..PatchParams::default() };
                let written =
                    api_call(api.patch(WEBHOOK_PATH_SECRET, &parameters, &Patch::Merge(patch))).await;
                // Deleted meanwhile: the next attempt creates it.
                if written.as_ref().is_err_and(ApiCallError::is_not_found) {
                    self.secret = Some(None);
                }
                written
            }
            None => {
                let data: HashMap<_, _> = state
                    .data()
                    .into_iter()
                    .map(|(key, text)| (key, ByteString(text.into_bytes())))
                    .collect();
                let secret = json!({
                    "metadata": {"name": WEBHOOK_PATH_SECRET, "labels": labels()}, "type": "Opaque", "data": data,
                });
                let secret = serde_json::from_value(secret).map_err(WebhookPathError::Build)?;
                let parameters = PostParams { field_manager: field_manager(), ..PostParams::default() };
                api_call(api.create(&parameters, &secret)).await
            }
        };
        let what = format!("write Secret {}/{WEBHOOK_PATH_SECRET}", self.namespace);
        self.secret = Some(Some(written.map_err(|source| WebhookPathError::Api { what, source })?));
        Ok(())
    }
}

impl Upkeep for WebhookPathManager {
    type Change = PathChange;
    type Error = WebhookPathError;
    const WHAT: &str = "webhook paths";
    const MEANWHILE: &str = "the paths stay as they are";

    fn apply(&mut self, change: PathChange) {
        match change {
            PathChange::Secret(secret) => self.secret = Some(secret.map(|secret| *secret)),
            PathChange::Configuration(name, paths) => drop(self.paths.insert(name, paths)),
        }
    }

    fn knows_all(&self) -> bool {
        self.secret.is_some() && self.paths.len() == 2
    }

    async fn reconcile(&mut self) -> Result<Duration, WebhookPathError> {
        loop {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let stored = self.stored();
            let used: Vec<PathSecret> =
                self.paths.values().flatten().flat_map(EntryPaths::used).cloned().collect();
            // Before it is known that it is needed, because the generator can fail.
            let random = random()?;
            let turn = rotate(stored.as_ref(), &used, now, self.times, || random);
            if let Some(why) = turn.change {
                tracing::info!(
                    secret = WEBHOOK_PATH_SECRET,
                    "writing the secret of the webhook paths: {why}"
                );
                self.write(&turn.state).await?;
            }
            // Only now: webhooks accept what is in the Secret.
            let has_changed = self.configure(&turn.state).await? || turn.change.is_some();
            if !has_changed {
                let due = turn.next_step.map_or(MAX_INTERVAL, |due| {
                    Duration::from_secs(due.saturating_sub(now).max(1)).min(MAX_INTERVAL)
                });
                // Spread, so that one replica writes first and the others find the result.
                return Ok(spread(due, 0.02));
            }
        }
    }

    fn is_conflict(error: &WebhookPathError) -> bool {
        matches!(error, WebhookPathError::Api { source, .. } if source.is_conflict())
    }
}

fn field_manager() -> Option<String> {
    Some(FIELD_MANAGER.to_owned())
}

/// Returns a secret of 256 random bits from the generator of the operating system.
fn random() -> Result<PathSecret, WebhookPathError> {
    let mut bytes = [0; 32];
    let provider = rustls::crypto::ring::default_provider();
    provider.secure_random.fill(&mut bytes).map_err(|_| WebhookPathError::Random)?;
    Ok(PathSecret::of_random(bytes))
}
