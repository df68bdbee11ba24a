//! The object that a command is about.

use std::fmt::Display;

use anyhow::{Result, bail};
use clap::error::ErrorKind;

use crate::workload_kind::WorkloadKind;

/// The object that a command is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ObjectTarget {
    Pod(String),
    Node(String),
    Workload(WorkloadKind, String),
}

impl ObjectTarget {
    /// Parses `NAME` or `KIND/NAME`, with the names and short names of kinds as in kubectl.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let Some((kind, name)) = text.split_once('/') else { return Ok(ObjectTarget::Pod(text.to_owned())) };
        let name = name.to_owned();
        Ok(match kind.split('.').next().unwrap_or(kind).to_lowercase().as_str() {
            "po" | "pod" | "pods" => ObjectTarget::Pod(name),
            "no" | "node" | "nodes" => ObjectTarget::Node(name),
            _ => ObjectTarget::Workload(WorkloadKind::parse(kind)?, name),
        })
    }
}

/// Parses the words of a command line that name an object: `NAME`, `KIND/NAME`, or `KIND NAME`.
///
/// # Errors
/// When the kind is not known. It is an error of the command line.
pub(crate) fn object_target(object: &str, name: Option<&str>) -> Result<ObjectTarget, clap::Error> {
    ObjectTarget::parse(&with_kind(object, name)?).map_err(usage)
}

/// Returns `KIND/NAME` for `KIND NAME`, and a single word as it is.
///
/// # Errors
/// When there are two names. It is an error of the command line.
fn with_kind(object: &str, name: Option<&str>) -> Result<String, clap::Error> {
    match name {
        None => Ok(object.to_owned()),
        Some(name) if object.contains('/') || name.contains('/') => {
            Err(usage(format!("{object} and {name} are two objects: name one")))
        }
        Some(name) => Ok(format!("{object}/{name}")),
    }
}

/// Returns the error of a command line that clap has accepted.
pub(crate) fn usage(message: impl Display) -> clap::Error {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{message}\n"))
}

/// Checks that the user does not want one namespace and all of them. clap does not see a namespace before the command.
///
/// # Errors
/// When both are given. It is an error of the command line.
pub(crate) fn one_namespace_or_all(namespace: Option<&str>, all: bool) -> Result<(), clap::Error> {
    match namespace {
        Some(_) if all => Err(usage("all namespaces, or one: leave out --namespace, or --all (-A)")),
        _ => Ok(()),
    }
}

/// Parses the name of a pod: `NAME`, or `pod/NAME` as kubectl prints it.
///
/// # Errors
/// When it names another object.
pub(crate) fn pod_name(text: &str) -> Result<String> {
    match ObjectTarget::parse(text) {
        Ok(ObjectTarget::Pod(name)) if !name.is_empty() && !name.contains('/') => Ok(name),
        _ => bail!("{text:?} does not name a pod: give NAME or pod/NAME"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named_as_in_kubectl() {
        let parse = |text: &str| ObjectTarget::parse(text).unwrap();
        assert_eq!(parse("web-0"), ObjectTarget::Pod("web-0".to_owned()));
        assert_eq!(parse("node/n1"), ObjectTarget::Node("n1".to_owned()));
        for text in ["deploy/web", "deployment/web", "Deployments.apps/web"] {
            assert_eq!(parse(text), ObjectTarget::Workload(WorkloadKind::Deployment, "web".to_owned()));
        }
        assert!(ObjectTarget::parse("svc/web").is_err());
    }

    #[test]
    fn kind_and_name_can_be_two_words() {
        let deployment = ObjectTarget::Workload(WorkloadKind::Deployment, "web".to_owned());
        assert_eq!(object_target("deploy", Some("web")).unwrap(), deployment);
        assert_eq!(object_target("pod", Some("web-0")).unwrap(), ObjectTarget::Pod("web-0".to_owned()));
        assert_eq!(object_target("deploy", None).unwrap(), ObjectTarget::Pod("deploy".to_owned()));
        for (object, name) in
            [("web-0", "web-1"), ("pod/web-0", "web-1"), ("svc", "web"), ("pod", "pod/web-0")]
        {
            let error = object_target(object, Some(name)).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{object} {name}");
        }
    }

    #[test]
    fn a_pod_is_named_with_and_without_its_kind() {
        for text in ["web-0", "po/web-0", "pod/web-0", "pods/web-0"] {
            assert_eq!(pod_name(text).unwrap(), "web-0");
        }
        for text in ["", "pod/", "pod/web-0/x", "deploy/web", "node/n1", "svc/web", "/web-0"] {
            let error = pod_name(text).unwrap_err().to_string();
            assert!(error.ends_with("does not name a pod: give NAME or pod/NAME"), "{text}: {error}");
        }
    }
}
