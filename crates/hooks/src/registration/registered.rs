//! A compiled LifecycleHook: the pods that it is responsible for, and the connection to it.

use std::time::Duration;

use kube::ResourceExt;
use podward_api::{LifecycleHook, LifecycleHookSpec};
use podward_core::hooks::Hook;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tonic::transport::Uri;

/// A compiled LifecycleHook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegisteredHook {
    pub(crate) hook: Hook,
    pub(crate) connection: HookConnection,
    /// The maximum number of concurrent calls.
    pub(crate) max_concurrent_calls: usize,
    /// The timeout of one call.
    pub(crate) call_timeout: Duration,
}

/// The connection to a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HookConnection {
    Endpoint(HookEndpoint),
    /// The hook system connects to Podward.
    Attachment,
    /// The hook is not called because its spec is invalid. The text is the reason.
    Invalid(String),
}

/// A hook server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HookEndpoint {
    /// `https://<host>:<port>`.
    pub(crate) url: String,
    /// The authorities of its certificate as PEM; those of the system if empty.
    pub(crate) ca_certificates: String,
    /// The name that its certificate must contain.
    pub(crate) server_name: String,
    /// True if the URL is that of a team without rights in the cluster: the address policy decides whether it is
    /// connected to, and errors of connections are not repeated.
    pub(crate) is_guarded: bool,
}

/// Compiles `object`; the error is the reason why it is invalid.
pub(crate) fn compile(object: &LifecycleHook) -> Result<RegisteredHook, String> {
    let hook = object.to_hook().map_err(|error| error.to_string())?;
    let spec = &object.spec;
    Ok(RegisteredHook {
        hook: Hook { name: object.name_any(), ..hook },
        connection: connection(spec)?,
        max_concurrent_calls: usize::try_from(spec.max_concurrent_calls).unwrap_or(1),
        call_timeout: Duration::from_millis(u64::from(spec.call_timeout_milliseconds)),
    })
}

fn connection(spec: &LifecycleHookSpec) -> Result<HookConnection, String> {
    match (&spec.endpoint, &spec.attachment) {
        (Some(given), None) => endpoint(given, spec.namespace.is_some()).map(HookConnection::Endpoint),
        (None, Some(_)) => Ok(HookConnection::Attachment),
        _ => Err("spec: exactly one of endpoint and attachment must be set".to_owned()),
    }
}

/// `given` as it is asked. That it is right was checked before, except that its certificates can be trusted.
pub(crate) fn endpoint(given: &podward_api::Endpoint, is_guarded: bool) -> Result<HookEndpoint, String> {
    let uri: Uri = given
        .url
        .parse()
        .map_err(|error| format!("spec.endpoint.url: {:?} is no URL: {error}", given.url))?;
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    for certificate in CertificateDer::pem_slice_iter(given.ca_certificates.as_bytes()).flatten() {
        rustls::RootCertStore::empty()
            .add(certificate)
            .map_err(|error| format!("spec.endpoint.caCertificates: one can't be used: {error}"))?;
    }
    Ok(HookEndpoint {
        url: given.url.clone(),
        ca_certificates: given.ca_certificates.clone(),
        server_name: given.server_name.as_deref().unwrap_or(host).to_owned(),
        is_guarded,
    })
}
