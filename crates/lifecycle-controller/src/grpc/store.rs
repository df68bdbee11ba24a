//! The LifecycleHook resources.

use std::time::Duration;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use podward_api::LifecycleHook;
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::status::timely;

/// Annotation of a hook that was registered over gRPC: by whom it was changed last.
const REGISTERED_BY: &str = "podward.io/registered-by";
const TRIES: u32 = 6;

/// Reads and writes hooks.
#[derive(Clone)]
pub(super) struct Store {
    hooks: Api<LifecycleHook>,
}

impl Store {
    pub(super) fn new(client: Client) -> Self {
        Self { hooks: Api::all(client) }
    }

    /// Makes the stored hook of that name what `wanted` is, for `user`. Writes nothing when it is so already.
    pub(super) async fn put(&self, mut wanted: LifecycleHook, user: &str) -> Result<LifecycleHook, Status> {
        let name = wanted.name_any();
        wanted.annotations_mut().insert(REGISTERED_BY.to_owned(), user.to_owned());
        let mut tried = 0;
        loop {
            let stored = timely(|| format!("read hook {name:?}"), self.hooks.get_opt(&name)).await?;
            let written = match stored {
                Some(stored) if stored.spec == wanted.spec => return Ok(stored),
                Some(stored) => self.change(&stored, &wanted, user).await,
                None => {
                    let params = PostParams::default();
                    timely(|| format!("store hook {name:?}"), self.hooks.create(&params, &wanted)).await
                }
            };
            match written {
                // Somebody else was faster: look at what they wrote.
                Err(status) if status.code() == Code::Aborted && tried < TRIES => {
                    tried += 1;
                    let base = Duration::from_millis(10).saturating_mul(1 << tried);
                    tokio::time::sleep(base.mul_f64(0.5 + fastrand::f64())).await;
                }
                Ok(written) => {
                    tracing::info!(hook = name, user, "a hook was registered");
                    return Ok(written);
                }
                failed => return failed,
            }
        }
    }

    async fn change(
        &self,
        stored: &LifecycleHook,
        wanted: &LifecycleHook,
        user: &str,
    ) -> Result<LifecycleHook, Status> {
        let name = wanted.name_any();
        let failed = |error: serde_json::Error| {
            Status::internal(format!("could not write hook {name:?} as JSON: {error}"))
        };
        let spec = serde_json::to_value(&wanted.spec).map_err(failed)?;
        let replace = |path: &[&str], value: Value| {
            PatchOperation::Replace(ReplaceOperation {
                path: PointerBuf::from_tokens(path.iter().copied()),
                value,
            })
        };
        let add = |path: &[&str], value: Value| {
            PatchOperation::Add(AddOperation { path: PointerBuf::from_tokens(path.iter().copied()), value })
        };
        // With the version that it was decided on: the API server refuses it when there is another by now.
        let version = json!(stored.resource_version().unwrap_or_default());
        let mut operations =
            vec![replace(&["metadata", "resourceVersion"], version), replace(&["spec"], spec)];
        operations.push(match stored.metadata.annotations {
            Some(_) => add(&["metadata", "annotations", REGISTERED_BY], json!(user)),
            None => add(&["metadata", "annotations"], json!({ REGISTERED_BY: user })),
        });
        let patch = Patch::Json::<()>(json_patch::Patch(operations));
        timely(|| format!("change hook {name:?}"), self.hooks.patch(&name, &PatchParams::default(), &patch))
            .await
    }

    /// Removes the hook `name`; tells whether there was one.
    pub(super) async fn remove(&self, name: &str) -> Result<bool, Status> {
        let params = DeleteParams::default();
        match timely(|| format!("delete hook {name:?}"), self.hooks.delete(name, &params)).await {
            Ok(_) => Ok(true),
            Err(status) if status.code() == Code::NotFound => Ok(false),
            Err(status) => Err(status),
        }
    }

    /// All hooks, by name.
    pub(super) async fn list(&self) -> Result<Vec<LifecycleHook>, Status> {
        let params = ListParams::default();
        let mut hooks = timely(|| "list hooks".to_owned(), self.hooks.list(&params)).await?.items;
        hooks.sort_by_key(ResourceExt::name_any);
        Ok(hooks)
    }
}
