//! The names of hooks, and of the LifecycleHooks that store them.

use crate::text::excerpt;

use super::LifecycleHook;
use super::invalid::{InvalidHook, wrong};

/// The name of a hook. The namespace of a hook that selects the pods of one namespace only is part of it, so that teams
/// choose names independently of each other, and of hooks for several namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookName {
    namespace: Option<String>,
    name: String,
}

impl HookName {
    /// Returns a name that is valid. An empty namespace stands for a hook that is not limited to one namespace.
    ///
    /// # Errors
    /// Fails if one of them is not a DNS label.
    pub fn new(namespace: &str, name: &str) -> Result<Self, InvalidHook> {
        check_hook_name(name)?;
        if !namespace.is_empty() && !is_dns_label(namespace) {
            return wrong("spec.namespace", format!("{:?} {NOT_A_LABEL}", excerpt(namespace)));
        }
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty()).map(ToOwned::to_owned);
        Ok(Self { namespace, name: name.to_owned() })
    }

    /// Returns the name of the hook that `object` stores.
    ///
    /// # Errors
    /// Fails if the name of the object is not that of a hook with its `spec.namespace`.
    pub fn of(object: &LifecycleHook) -> Result<Self, InvalidHook> {
        let stored = object.metadata.name.as_deref().unwrap_or_default();
        let Some(namespace) = &object.spec.namespace else { return Self::new("", stored) };
        if namespace.is_empty() {
            return wrong("spec.namespace", format!("\"\" {NOT_A_LABEL}"));
        }
        match stored.split_once('.') {
            Some((prefix, name)) if prefix == namespace => Self::new(namespace, name),
            _ => wrong("metadata.name", format!("{:?} is not <spec.namespace>.<name>", excerpt(stored))),
        }
    }

    /// Returns the namespace; `None` if the hook is not limited to one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the name within the namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the LifecycleHook: `<namespace>.<name>`, or `<name>` without a namespace. As both are DNS
    /// labels, two hooks never have the same one.
    #[must_use]
    pub fn object_name(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}.{}", self.name),
            None => self.name.clone(),
        }
    }
}

const NOT_A_LABEL: &str =
    "is not a DNS label: 1 to 63 lower case letters, digits and '-', with a letter or digit at both ends";

/// Checks the name of a hook within its namespace.
///
/// # Errors
/// Fails if it is not a DNS label.
pub fn check_hook_name(name: &str) -> Result<(), InvalidHook> {
    if is_dns_label(name) {
        return Ok(());
    }
    wrong("metadata.name", format!("{:?} {NOT_A_LABEL}", excerpt(name)))
}

fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && is_part_of_domain(name)
}

/// Returns true if `text` has the format of a DNS label, of any length: lower case letters, digits and '-', with a letter or
/// digit at both ends.
pub(crate) fn is_part_of_domain(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_edge =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = text.as_bytes();
    is_edge(bytes.first()) && is_edge(bytes.last()) && bytes.iter().copied().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LifecycleHookSpec;

    #[test]
    fn hooks_of_namespaces_never_have_the_name_of_another_hook() {
        let stored = |namespace, name| HookName::new(namespace, name).unwrap().object_name();
        assert_eq!((stored("", "lb").as_str(), stored("shop", "lb").as_str()), ("lb", "shop.lb"));
        assert_ne!(stored("shop", "a-b"), stored("shop-a", "b"));
        for (namespace, name) in [
            ("", "shop.lb"),
            ("shop", "a.lb"),
            ("a.shop", "lb"),
            ("shop", ""),
            ("Shop", "lb"),
            ("../a", "lb"),
        ] {
            assert!(HookName::new(namespace, name).is_err(), "{namespace} {name}");
        }
        let longest = "x".repeat(63);
        assert_eq!(stored(&longest, &longest).len(), 127);
    }

    #[test]
    fn the_object_has_the_name_of_its_namespace() {
        let object = |namespace: Option<&str>, name: &str| {
            let namespace = namespace.map(ToOwned::to_owned);
            LifecycleHook::new(name, LifecycleHookSpec { namespace, ..LifecycleHookSpec::default() })
        };
        let of = |namespace, name| HookName::of(&object(namespace, name));
        assert_eq!(of(Some("shop"), "shop.lb").unwrap(), HookName::new("shop", "lb").unwrap());
        assert_eq!(of(None, "lb").unwrap().namespace(), None);
        for (namespace, name) in [
            (None, "shop.lb"),
            (Some("shop"), "lb"),
            (Some("shop"), "bank.lb"),
            (Some("shop"), "shop.a.b"),
            (Some(""), ".lb"),
        ] {
            assert!(of(namespace, name).is_err(), "{namespace:?} {name}");
        }
    }
}
