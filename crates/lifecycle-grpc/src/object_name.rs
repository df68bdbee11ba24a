//! Names of Kubernetes objects.

/// Returns true if `name` can be the name of a namespace, pod or hook: a DNS subdomain. Such a name is also safe in the
/// path of a request.
pub(super) fn is_object_name(name: &str) -> bool {
    let is_edge =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = name.as_bytes();
    bytes.len() <= 253
        && is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(byte))
}
