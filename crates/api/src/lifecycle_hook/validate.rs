//! Validation of a `LifecycleHook`. The schema of the resource contains most of these checks too. Hooks that register
//! over gRPC need all of them, and some cannot be expressed in a schema.

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};

use crate::text::excerpt;

use super::invalid::{InvalidHook, wrong};
use super::{
    CALL_TIMEOUT_MILLISECONDS, Endpoint, FailurePolicy, HookName, LifecycleHook, LifecycleHookSpec,
    MAX_CONCURRENT_CALLS, MAX_DEADLINE_SECONDS, ORDER_LIMIT, Phase, PostCheckRejection,
};

const MAX_TYPES: usize = 64;
const MAX_CERTIFICATES: usize = 262_144;

impl LifecycleHook {
    /// Checks every field except the selectors, which [`to_hook`](Self::to_hook) compiles.
    ///
    /// # Errors
    /// Returns the first error.
    pub fn check(&self) -> Result<(), InvalidHook> {
        let spec = &self.spec;
        HookName::of(self)?;
        if spec.namespace.is_some() && spec.namespace_selector.is_some() {
            return wrong("spec.namespaceSelector", "must not be set together with namespace");
        }
        check_phases(&spec.phases)?;
        check_types(&spec.operation_types)?;
        match (&spec.endpoint, &spec.attachment) {
            (Some(endpoint), None) => check_endpoint(endpoint)?,
            (None, Some(_)) => {}
            _ => return wrong("spec.endpoint", "exactly one of endpoint and attachment must be set"),
        }
        check_rejection(spec)?;
        let deadline = spec.deadline_seconds;
        if !(1..=MAX_DEADLINE_SECONDS).contains(&deadline) {
            let problem = format!("{deadline} s is not between 1 s and {MAX_DEADLINE_SECONDS} s (24 hours)");
            return wrong("spec.deadlineSeconds", problem);
        }
        if !(-ORDER_LIMIT..=ORDER_LIMIT).contains(&spec.order) {
            return wrong(
                "spec.order",
                format!("{} is not between -{ORDER_LIMIT} and {ORDER_LIMIT}", spec.order),
            );
        }
        let calls = spec.max_concurrent_calls;
        if !(1..=MAX_CONCURRENT_CALLS).contains(&calls) {
            return wrong(
                "spec.maxConcurrentCalls",
                format!("{calls} is not between 1 and {MAX_CONCURRENT_CALLS}"),
            );
        }
        let timeout = spec.call_timeout_milliseconds;
        if !CALL_TIMEOUT_MILLISECONDS.contains(&timeout) {
            return wrong(
                "spec.callTimeoutMilliseconds",
                format!("{timeout} ms is not between 100 ms and 60 s"),
            );
        }
        Ok(())
    }
}

fn check_phases(phases: &[Phase]) -> Result<(), InvalidHook> {
    if phases.is_empty() {
        return wrong("spec.phases", "must contain at least one phase");
    }
    if let Some((_, twice)) =
        phases.iter().enumerate().find(|(index, phase)| phases[..*index].contains(phase))
    {
        return wrong("spec.phases", format!("contains {twice:?} twice"));
    }
    let holds = phases.iter().any(|phase| matches!(phase, Phase::Prepare | Phase::Complete));
    if phases.contains(&Phase::Release) && !holds {
        return wrong("spec.phases", "Release is only for consumers of pods; add Prepare or Complete");
    }
    Ok(())
}

/// A refusal that an operator is told about must not end without an answer of the hook or an action of the operator.
fn check_rejection(spec: &LifecycleHookSpec) -> Result<(), InvalidHook> {
    if spec.post_check_rejection == PostCheckRejection::Hold {
        return Ok(());
    }
    if !spec.phases.contains(&Phase::PostCheck) {
        return wrong("spec.postCheckRejection", "Rollback requires the phase PostCheck; add it to phases");
    }
    if spec.failure_policy == FailurePolicy::Ignore {
        return wrong(
            "spec.failurePolicy",
            "must be Fail with postCheckRejection Rollback: with Ignore, a refused result would be accepted while the \
             hook is unreachable",
        );
    }
    Ok(())
}

fn check_types(types: &[String]) -> Result<(), InvalidHook> {
    if types.len() > MAX_TYPES {
        let problem = format!("contains more than {MAX_TYPES} types; leave it empty for all types");
        return wrong("spec.operationTypes", problem);
    }
    match types.iter().find(|text| !is_label_value(text)) {
        Some(bad) => wrong(
            "spec.operationTypes",
            format!(
                "{:?} is not a valid type: it must have 1 to 63 letters, digits, '-', '_' and '.', with a letter or \
                 digit at both ends",
                excerpt(bad)
            ),
        ),
        None => Ok(()),
    }
}

/// Returns true if `text` is a valid label value and not empty. The name of a label (without its prefix) has the same
/// format.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn check_endpoint(endpoint: &Endpoint) -> Result<(), InvalidHook> {
    check_url(&endpoint.url)?;
    if let Some(name) = &endpoint.server_name
        && ServerName::try_from(name.as_str()).is_err()
    {
        let problem = format!("{:?} is neither a DNS name nor an IP address", excerpt(name));
        return wrong("spec.endpoint.serverName", problem);
    }
    check_certificates(&endpoint.ca_certificates)
}

fn check_url(url: &str) -> Result<(), InvalidHook> {
    let bad = |problem: &str| {
        let problem = format!("{:?} must be https://<host>:<port>, without a path: {problem}", excerpt(url));
        wrong("spec.endpoint.url", problem)
    };
    let Some(authority) = url.strip_prefix("https://") else {
        return bad("its scheme is not https");
    };
    if authority.contains(['/', '?', '#', '@']) {
        return bad("it contains more than a host and a port");
    }
    let Some((host, port)) = authority.rsplit_once(':') else { return bad("it has no port") };
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    if !is_port || port.parse::<u16>().ok().is_none_or(|port| port == 0) {
        return bad("its port is not a number from 1 to 65535");
    }
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match inner {
        Some(ip) => ip.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.contains(':') && ServerName::try_from(host).is_ok(),
    };
    if is_host { Ok(()) } else { bad("its host is neither a DNS name nor an IP address") }
}

fn check_certificates(pem: &str) -> Result<(), InvalidHook> {
    const FIELD: &str = "spec.endpoint.caCertificates";
    if pem.is_empty() {
        return Ok(());
    }
    if pem.len() > MAX_CERTIFICATES {
        return wrong(
            FIELD,
            format!(
                "longer than {MAX_CERTIFICATES} bytes; include only the authorities that issue the hook's certificate"
            ),
        );
    }
    let mut found = 0;
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        if let Err(error) = certificate {
            return wrong(FIELD, format!("is not valid PEM: {error}"));
        }
        found += 1;
    }
    if found == 0 {
        return wrong(
            FIELD,
            "contains no certificate; set it to the PEM certificate of the authority that issues the hook's \
             certificate",
        );
    }
    Ok(())
}
