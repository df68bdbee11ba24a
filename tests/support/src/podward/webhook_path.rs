//! The secret in the paths of the webhooks.

use std::io::Read;

use anyhow::{Context, Result};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use podward_core::webhook_path::{PathSecret, WEBHOOK_PATH_SECRET, WebhookPathState};
use serde_json::{Value, json};

use super::options::NAMESPACE;

/// Stores a secret for webhooks that run as processes. The lifecycle-controller writes paths only to entries of webhook
/// configurations that call Services.
pub(super) async fn store(client: &Client) -> Result<PathSecret> {
    let mut bytes = [0; 32];
    let mut random = std::fs::File::open("/dev/urandom").context("open the random generator")?;
    random.read_exact(&mut bytes).context("read random bytes")?;
    let secret = PathSecret::of_random(bytes);
    let state = WebhookPathState { current: secret.clone(), since: 0, next: None, previous: None };
    let encoded = |text: String| json!(ByteString(text.into_bytes()));
    let data: serde_json::Map<String, Value> =
        state.data().into_iter().map(|(key, text)| (key.to_owned(), encoded(text))).collect();
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": WEBHOOK_PATH_SECRET}, "data": data,
    });
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let parameters = PatchParams::apply("podward-support").force();
    let stored = secrets.patch(WEBHOOK_PATH_SECRET, &parameters, &Patch::Apply(&object)).await;
    stored.with_context(|| format!("write Secret {WEBHOOK_PATH_SECRET}"))?;
    Ok(secret)
}

/// Returns what the Secret with the secrets of the webhook paths contains now.
///
/// # Errors
/// Fails if it cannot be read.
pub async fn webhook_paths(client: Client) -> Result<WebhookPathState> {
    let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
    let secret = secrets.get(WEBHOOK_PATH_SECRET).await;
    let secret = secret.with_context(|| format!("read Secret {WEBHOOK_PATH_SECRET}"))?;
    webhook_path_state(&secret)
}

/// Returns the contents of the Secret with the secrets of the webhook paths.
///
/// # Errors
/// Fails if a key is missing or has another form.
pub fn webhook_path_state(secret: &Secret) -> Result<WebhookPathState> {
    let get = |key: &str| std::str::from_utf8(&secret.data.as_ref()?.get(key)?.0).ok();
    WebhookPathState::read(get).with_context(|| format!("read the data of Secret {WEBHOOK_PATH_SECRET}"))
}
