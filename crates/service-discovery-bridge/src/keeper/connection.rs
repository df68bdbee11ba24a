//! The client of a binding's registry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use podward_api::discovery_binding::BindingRegistry;
use podward_api::registry_connection::RegistryConnection;
use podward_discovery::{RegistrySecrets, check_mode, connect};
use podward_runtime::retry::api_call;

use super::shared::Shared;
use crate::members::Fence;
use crate::model::Binding;
use crate::sync::{CallLog, ManagedRegistry, RegistryAccess};

/// The pause before a connection that could not be made is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Secrets are read again after this time, and when the registry refuses them. They are not watched: a Role may allow to
/// get a single one only.
const SECRETS_AGE: Duration = Duration::from_secs(300);

/// The client of a binding's registry, made again when what it depends on changes.
#[derive(Debug)]
pub(crate) struct RegistryConnector {
    fence: Fence,
    made: Option<Made>,
    problem: Option<String>,
    due: Duration,
}

#[derive(Debug)]
struct Made {
    connection: RegistryConnection,
    secrets: Vec<BTreeMap<String, Vec<u8>>>,
    access: RegistryAccess,
    at: Duration,
}

impl RegistryConnector {
    /// Changes are made while `fence` is open.
    pub(crate) fn new(fence: Fence) -> Self {
        Self { fence, made: None, problem: None, due: Duration::ZERO }
    }

    /// Returns one that has made the client of a connection already.
    #[cfg(test)]
    pub(crate) fn connected(fence: Fence, connection: RegistryConnection, access: RegistryAccess) -> Self {
        let made = Made { connection, secrets: Vec::new(), access, at: Duration::ZERO };
        Self { made: Some(made), ..Self::new(fence) }
    }

    /// Returns the client for `binding`, or the reason why there is none.
    ///
    /// # Errors
    /// Fails with a text for people: the ClusterRegistry or a Secret does not exist or may not be used, or the connection is
    /// invalid.
    pub(crate) async fn access(
        &mut self,
        shared: &Shared,
        binding: &Binding,
    ) -> Result<RegistryAccess, String> {
        let now = shared.index.now();
        let (connection, namespace) = match connection_of(shared, binding) {
            Ok(found) => found,
            Err(problem) => {
                self.made = None;
                self.problem = Some(problem.clone());
                return Err(problem);
            }
        };
        if let Some(made) = &self.made
            && made.connection == connection
        {
            let is_refused = made.access.is_denied() && now >= self.due;
            let is_recent = now.saturating_sub(made.at) < SECRETS_AGE && !is_refused;
            if connection.secrets().next().is_none() || is_recent {
                return Ok(made.access.clone());
            }
        }
        if let Some(problem) = self.problem.clone().filter(|_| now < self.due) {
            return Err(problem);
        }
        let made = self.make(shared, binding, &connection, &namespace).await;
        self.due = now + RETRY;
        match made {
            Ok(access) => {
                self.problem = None;
                Ok(access)
            }
            Err(problem) => {
                // What worked before continues to be used while the Secrets cannot be read.
                if let Some(made) = self.made.as_mut().filter(|made| made.connection == connection) {
                    made.at = now.saturating_sub(SECRETS_AGE).saturating_add(RETRY);
                    return Ok(made.access.clone());
                }
                self.problem = Some(problem.clone());
                Err(problem)
            }
        }
    }

    async fn make(
        &mut self,
        shared: &Shared,
        binding: &Binding,
        connection: &RegistryConnection,
        namespace: &str,
    ) -> Result<RegistryAccess, String> {
        let mut secrets = RegistrySecrets::default();
        let mut read = Vec::new();
        if let Some(name) = &connection.credentials_secret {
            let data = secret(shared, namespace, name).await?;
            secrets.credentials = RegistrySecrets::credentials(&data)
                .map_err(|problem| format!("Secret {namespace}/{name} {problem}"))?;
            read.push(data);
        }
        if let Some(name) = connection.tls.as_ref().and_then(|tls| tls.client_secret.as_ref()) {
            let data = secret(shared, namespace, name).await?;
            let identity = RegistrySecrets::identity(&data);
            secrets.identity =
                Some(identity.map_err(|problem| format!("Secret {namespace}/{name} {problem}"))?);
            read.push(data);
        }
        let at = shared.index.now();
        if let Some(made) = &mut self.made
            && made.connection == *connection
            && made.secrets == read
        {
            made.at = at;
            made.access.forget_denials();
            return Ok(made.access.clone());
        }
        let field = "spec.registry.connection";
        let registry = connect(connection, secrets, Arc::clone(&shared.dialer), field)
            .map_err(|error| error.to_string())?;
        check_mode(binding.mode, connection.kind, &*registry).map_err(|error| error.to_string())?;
        let limiter = shared.limiters.of(&limited_name(binding), connection.limits);
        let log = shared.spans.are_wanted().then(Arc::<CallLog>::default);
        let registry = Arc::new(ManagedRegistry::new(registry, limiter, self.fence.clone(), log.clone()));
        let access = RegistryAccess::new(registry, connection, Arc::clone(&shared.cluster), log);
        let made = Made { connection: connection.clone(), secrets: read, access: access.clone(), at };
        self.made = Some(made);
        Ok(access)
    }
}

/// Returns the connection of a binding, and the namespace of its Secrets.
fn connection_of(shared: &Shared, binding: &Binding) -> Result<(RegistryConnection, String), String> {
    match &binding.spec.registry {
        BindingRegistry { cluster_registry: Some(name), .. } => {
            let registry = shared.index.registry(name).ok_or_else(|| {
                format!("ClusterRegistry {name} does not exist; create it, or correct spec.registry.clusterRegistry")
            })?;
            registry.check().map_err(|error| format!("ClusterRegistry {name} is invalid: {error}"))?;
            Ok((registry.spec.connection.clone(), shared.namespace.to_string()))
        }
        BindingRegistry { connection: Some(connection), .. } => {
            Ok((connection.clone(), binding.key.namespace.clone()))
        }
        BindingRegistry { .. } => Err("spec.registry is empty".to_owned()),
    }
}

/// Returns the name of what the limits of a connection are for.
fn limited_name(binding: &Binding) -> String {
    match &binding.spec.registry.cluster_registry {
        Some(name) => format!("ClusterRegistry {name}"),
        None => format!("DiscoveryBinding {}", binding.key),
    }
}

async fn secret(shared: &Shared, namespace: &str, name: &str) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let secrets: Api<Secret> = Api::namespaced(shared.client.clone(), namespace);
    match api_call(secrets.get_opt(name)).await {
        Ok(Some(secret)) => {
            Ok(secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect())
        }
        Ok(None) => Err(format!("Secret {namespace}/{name} does not exist; create it")),
        Err(error) if error.code() == Some(403) => Err(format!(
            "the service-discovery-bridge may not get Secret {namespace}/{name}; allow it with a Role and a RoleBinding in \
             namespace {namespace}"
        )),
        Err(error) => Err(format!("could not read Secret {namespace}/{name}: {error}")),
    }
}
