//! The finalizers of hooks, and their keys among the expected finalizers.

use sha2::{Digest, Sha256};

use super::keys::PROT_FINALIZER_PREFIX;

/// Returns the finalizer of the hook `name`: `prot.podopslifecycle.kusionstack.io/lifecyclehook-<first 16 hex digits of
/// sha256("lifecyclehook//<name>")>`.
#[must_use]
pub fn hook_finalizer(name: &str) -> String {
    use std::fmt::Write;

    let digest = Sha256::digest(format!("lifecyclehook//{name}"));
    let mut finalizer = format!("{PROT_FINALIZER_PREFIX}/lifecyclehook-");
    for byte in &digest[..8] {
        let _ = write!(finalizer, "{byte:02x}");
    }
    finalizer
}

/// Returns the audience of the tokens that Podward sends to the server of the hook `name`:
/// `podward.io/hooks/<name>`. No two hooks have the same audience, so a hook server can't use its token at another one.
#[must_use]
pub fn hook_audience(name: &str) -> String {
    format!("podward.io/hooks/{name}")
}

/// Returns whether `finalizer` has the form of [`hook_finalizer`], so that it belongs to a present or former hook.
#[must_use]
pub fn is_hook_finalizer(finalizer: &str) -> bool {
    finalizer.strip_prefix(PROT_FINALIZER_PREFIX).is_some_and(|name| name.starts_with("/lifecyclehook-"))
}

/// Returns whether one of `finalizers` belongs to a present or former hook.
#[must_use]
pub fn has_hook_finalizer(finalizers: &[String]) -> bool {
    finalizers.iter().any(|name| is_hook_finalizer(name))
}

/// Returns the key of the hook `name` among the expected finalizers: `LifecycleHook//<name>` (kind, no namespace,
/// name).
#[must_use]
pub fn consumer_key_of(name: &str) -> String {
    format!("LifecycleHook//{name}")
}

/// Returns the name of the hook that a key among the expected finalizers names, or `None` for other consumers.
#[must_use]
pub fn hook_of_consumer_key(consumer: &str) -> Option<&str> {
    consumer.strip_prefix("LifecycleHook//")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalizers_are_stable_and_legal() {
        let finalizer = hook_finalizer("traffic-controller");
        let (prefix, name) = finalizer.split_once('/').unwrap();
        assert_eq!(prefix, PROT_FINALIZER_PREFIX);
        assert!(name.len() == "lifecyclehook-".len() + 16 && name.len() <= 63, "{name}");
        assert_ne!(finalizer, hook_finalizer("traffic-controller2"));
        assert!(is_hook_finalizer(&finalizer));
        assert!(!is_hook_finalizer("prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb"));
        assert_eq!(hook_of_consumer_key(&consumer_key_of("x")), Some("x"));
    }
}
