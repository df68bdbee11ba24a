//! Reads and writes LifecycleHook resources.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use podward_api::LifecycleHook;
use podward_runtime::retry::{CONFLICT, Retryable};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::status::{api_request, invalid_hook};
use super::write_rights::{HookWrite, WriteRights};

/// Annotation of a hook that was created over gRPC: the user who created it. Later changes keep it.
pub(super) const OWNER: &str = "podward.io/owner";
/// Annotation of a hook that was registered over gRPC: the user of the last change.
pub(super) const REGISTERED_BY: &str = "podward.io/registered-by";

/// The maximum number of hooks that are limited to one namespace.
const MAX_HOOKS_OF_NAMESPACE: usize = 64;
/// The maximum size of the spec of a hook that is limited to one namespace, as JSON, in bytes.
const MAX_SPEC_OF_NAMESPACE: usize = 64 << 10;
/// The number of hooks that are read in one request.
const PAGE: u32 = 25;

/// Checks that `write` stores no hook that is too large. A team must not use up the memory of others. A hook that an
/// earlier version has stored may be larger, and registers again at every start.
///
/// # Errors
/// INVALID_ARGUMENT if it does.
fn check_size(write: &HookWrite, wanted: &LifecycleHook) -> Result<(), Status> {
    if matches!(write, HookWrite::None(_)) {
        return Ok(());
    }
    wanted.check_selector_sizes().map_err(|error| invalid_hook(&error))?;
    let spec = serde_json::to_vec(&wanted.spec)
        .map_err(|error| Status::internal(format!("could not serialize the hook: {error}")))?;
    if wanted.spec.namespace.is_none() || spec.len() <= MAX_SPEC_OF_NAMESPACE {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "the hook is not valid: its spec has {} bytes as JSON; the maximum for a hook of one namespace is \
         {MAX_SPEC_OF_NAMESPACE}; use shorter selectors, or fewer certificates",
        spec.len()
    )))
}

/// Reads and writes hooks.
#[derive(Clone)]
pub(super) struct HookStore {
    hooks: Api<LifecycleHook>,
}

impl HookStore {
    pub(super) fn new(client: Client) -> Self {
        Self { hooks: Api::all(client) }
    }

    /// Checks that `rights` allow to store `wanted` at the moment, and that it is not too large.
    ///
    /// # Errors
    /// PERMISSION_DENIED if they do not, INVALID_ARGUMENT if it is.
    pub(super) async fn check(&self, wanted: &LifecycleHook, rights: &WriteRights) -> Result<(), Status> {
        let stored = self.read(&wanted.name_any()).await?;
        check_size(&rights.decide(stored, wanted)?, wanted)
    }

    /// Creates or changes the hook in the name of `user`, as far as `rights` allow it, and returns the stored hook.
    /// Writes nothing if its spec is already stored.
    pub(super) async fn put(
        &self,
        mut wanted: LifecycleHook,
        user: &str,
        rights: &WriteRights,
    ) -> Result<LifecycleHook, Status> {
        for key in [OWNER, REGISTERED_BY] {
            wanted.annotations_mut().insert(key.to_owned(), user.to_owned());
        }
        let is_conflict = |status: &Status| status.code() == Code::Aborted;
        (|| self.try_put(&wanted, user, rights)).retry(CONFLICT).when(is_conflict).await
    }

    async fn try_put(
        &self,
        wanted: &LifecycleHook,
        user: &str,
        rights: &WriteRights,
    ) -> Result<LifecycleHook, Status> {
        let name = wanted.name_any();
        // The right depends on what is stored. The write fails if that changes in between.
        let written = match rights.decide(self.read(&name).await?, wanted)? {
            HookWrite::None(stored) => return Ok(*stored),
            HookWrite::Change(stored) => self.change(&stored, wanted, user).await?,
            HookWrite::Create => {
                // In a task of its own: a caller that does not wait must not keep a hook for which there is no room.
                let (store, wanted) = (self.clone(), wanted.clone());
                let created = tokio::spawn(async move { store.create(&wanted).await }).await;
                created.map_err(|error| Status::internal(error.to_string()))??
            }
        };
        tracing::info!(hook = name, user, "registered a hook");
        Ok(written)
    }

    /// Creates a hook. It is deleted again if others that were created meanwhile leave no room for it in its namespace.
    async fn create(&self, wanted: &LifecycleHook) -> Result<LifecycleHook, Status> {
        let (name, params) = (wanted.name_any(), PostParams::default());
        let create = || api_request(|| format!("store hook {name:?}"), self.hooks.create(&params, wanted));
        let Some(namespace) = &wanted.spec.namespace else { return create().await };
        if self.count(namespace).await? >= MAX_HOOKS_OF_NAMESPACE {
            return Err(Status::resource_exhausted(format!(
                "namespace {namespace} already has {MAX_HOOKS_OF_NAMESPACE} hooks of its own, the maximum; deregister one"
            )));
        }
        let created = create().await?;
        // If the count fails, the hook stays: another caller may have been told that it is stored.
        if self.count(namespace).await? <= MAX_HOOKS_OF_NAMESPACE {
            return Ok(created);
        }
        let preconditions = Preconditions { uid: created.uid(), resource_version: None };
        self.delete(&name, &DeleteParams::default().preconditions(preconditions)).await?;
        Err(Status::resource_exhausted(format!(
            "too many hooks of namespace {namespace} were registered at the same time; try again"
        )))
    }

    /// Returns the number of hooks that are limited to `namespace`.
    async fn count(&self, namespace: &str) -> Result<usize, Status> {
        let (all, prefix) = (ListParams::default(), format!("{namespace}."));
        let hooks = api_request(|| "count hooks".to_owned(), self.hooks.list_metadata(&all)).await?.items;
        Ok(hooks.iter().filter(|hook| hook.name_any().starts_with(&prefix)).count())
    }

    async fn read(&self, name: &str) -> Result<Option<LifecycleHook>, Status> {
        api_request(|| format!("read hook {name:?}"), self.hooks.get_opt(name)).await
    }

    async fn change(
        &self,
        stored: &LifecycleHook,
        wanted: &LifecycleHook,
        user: &str,
    ) -> Result<LifecycleHook, Status> {
        let name = wanted.name_any();
        let failed = |error: serde_json::Error| {
            Status::internal(format!("could not serialize hook {name:?}: {error}"))
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
        // The API server refuses the patch if the hook has changed since it was read.
        let version = json!(stored.resource_version().unwrap_or_default());
        let mut operations =
            vec![replace(&["metadata", "resourceVersion"], version), replace(&["spec"], spec)];
        operations.push(match stored.metadata.annotations {
            Some(_) => add(&["metadata", "annotations", REGISTERED_BY], json!(user)),
            None => add(&["metadata", "annotations"], json!({ REGISTERED_BY: user })),
        });
        let patch = Patch::Json::<()>(json_patch::Patch(operations));
        api_request(
            || format!("change hook {name:?}"),
            self.hooks.patch(&name, &PatchParams::default(), &patch),
        )
        .await
    }

    /// Deletes the hook `name`. Returns true if it existed.
    pub(super) async fn remove(&self, name: &str) -> Result<bool, Status> {
        self.delete(name, &DeleteParams::default()).await
    }

    async fn delete(&self, name: &str, params: &DeleteParams) -> Result<bool, Status> {
        match api_request(|| format!("delete hook {name:?}"), self.hooks.delete(name, params)).await {
            Ok(_) => Ok(true),
            Err(status) if status.code() == Code::NotFound => Ok(false),
            Err(status) => Err(status),
        }
    }

    /// Returns the hooks that are limited to `namespace`, or all hooks, sorted by name.
    pub(super) async fn list(&self, namespace: Option<&str>) -> Result<Vec<LifecycleHook>, Status> {
        let mut params = ListParams::default().limit(PAGE);
        let mut hooks = Vec::new();
        loop {
            let page = api_request(|| "list hooks".to_owned(), self.hooks.list(&params)).await?;
            let is_wanted =
                |hook: &LifecycleHook| namespace.is_none() || hook.spec.namespace.as_deref() == namespace;
            hooks.extend(page.items.into_iter().filter(is_wanted));
            params.continue_token = page.metadata.continue_.filter(|next| !next.is_empty());
            if params.continue_token.is_none() {
                break;
            }
        }
        hooks.sort_by_key(ResourceExt::name_any);
        Ok(hooks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_hook_that_is_too_large_registers_again() {
        let labels: serde_json::Map<_, _> = (0..65).map(|key| (format!("k{key}"), json!("a"))).collect();
        let large: LifecycleHook = serde_json::from_value(json!({
            "apiVersion": "podward.io/v1alpha1", "kind": "LifecycleHook", "metadata": {"name": "shop.lb"},
            "spec": {
                "namespace": "shop", "phases": ["Prepare"], "attachment": {},
                "podSelector": {"matchLabels": labels}, "operationTypes": ["x".repeat(MAX_SPEC_OF_NAMESPACE)],
            },
        }))
        .unwrap();
        let stored = || Box::new(large.clone());
        assert!(check_size(&HookWrite::None(stored()), &large).is_ok());
        for write in [HookWrite::Create, HookWrite::Change(stored())] {
            let refused = check_size(&write, &large).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
            assert!(refused.message().contains("spec.podSelector: matchLabels has 65 entries"), "{refused}");
        }
    }
}
