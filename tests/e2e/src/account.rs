//! The account of a hook system: that of `deploy/examples/rbac.yaml`, with names of its own, because tests run in
//! parallel.

use anyhow::{Context, Result};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams},
    core::GroupVersionKind,
};
use podward_images::workspace_dir;
use serde_json::Value;

/// The name of the account in the file.
const NAME: &str = "example-balancer";
/// Its namespace in the file.
const NAMESPACE: &str = "balancer";

/// An account with the rights to register a hook.
pub struct HookAuthor {
    client: Client,
    namespace: String,
    /// The objects that are not deleted with the namespace.
    left: Vec<(ApiResource, String)>,
}

impl HookAuthor {
    /// Creates the account in `namespace`, which must exist.
    ///
    /// # Errors
    /// Fails if an object cannot be created.
    pub async fn make(client: Client, namespace: &str) -> Result<Self> {
        let file = workspace_dir().join("deploy/examples/rbac.yaml");
        let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let documents = serde_saphyr::from_multiple::<Value>(&text).context("understand rbac.yaml")?;
        let mut account = Self { client, namespace: namespace.to_owned(), left: Vec::new() };
        for mut object in
            documents.into_iter().filter(|object| object.is_object() && object["kind"] != "Namespace")
        {
            account.rename(&mut object);
            account.create(object).await?;
        }
        Ok(account)
    }

    /// Moves the object into the test's namespace. Cluster-scoped objects get the name of the namespace.
    fn rename(&self, object: &mut Value) {
        let own =
            |name: &Value| Value::from(format!("{}-{}", name.as_str().unwrap_or_default(), self.namespace));
        if object["metadata"]["namespace"] == NAMESPACE {
            object["metadata"]["namespace"] = self.namespace.clone().into();
        } else {
            object["metadata"]["name"] = own(&object["metadata"]["name"]);
        }
        if object["roleRef"]["name"].as_str().is_some_and(|name| !name.starts_with("system:")) {
            object["roleRef"]["name"] = own(&object["roleRef"]["name"]);
        }
        for subject in object["subjects"].as_array_mut().into_iter().flatten() {
            subject["namespace"] = self.namespace.clone().into();
        }
        // Hooks of tests have names of their own.
        for rule in object["rules"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            rule.remove("resourceNames");
        }
    }

    async fn create(&mut self, object: Value) -> Result<()> {
        let object: DynamicObject = serde_json::from_value(object)?;
        let types = object.types.clone().context("an object without a kind")?;
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
        let what = format!("make {} {}", types.kind, object.name_any());
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &resource),
            None => {
                self.left.push((resource.clone(), object.name_any()));
                Api::all_with(self.client.clone(), &resource)
            }
        };
        api.create(&PostParams::default(), &object).await.with_context(|| what).map(drop)
    }

    /// Returns a token of the account, for the API server or for `audience`.
    ///
    /// # Errors
    /// Fails if the API server issues none.
    pub async fn token(&self, audience: Option<&str>) -> Result<String> {
        let audiences = audience.into_iter().map(ToOwned::to_owned).collect();
        let spec = TokenRequestSpec { audiences, ..TokenRequestSpec::default() };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let answer = accounts.create_token_request(NAME, &PostParams::default(), &request).await;
        let answer = answer.with_context(|| format!("get a token of {}/{NAME}", self.namespace))?;
        Ok(answer.status.context("an answer without a token")?.token)
    }

    /// Removes the objects that are not deleted with the namespace.
    ///
    /// # Errors
    /// Fails if an object cannot be removed.
    pub async fn remove(&self) -> Result<()> {
        for (resource, name) in &self.left {
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), resource);
            api.delete(name, &DeleteParams::default())
                .await
                .with_context(|| format!("delete {} {name}", resource.kind))?;
        }
        Ok(())
    }
}
