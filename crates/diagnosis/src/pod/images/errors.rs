//! The errors of registries and runtimes.

use crate::cause::Case;

/// Parts of errors in lower case, and words that are not to be found in other words. The first kind that occurs decides.
const ERRORS: [(&[&str], &[&str], Case); 4] = [
    (&["toomanyrequests", "too many requests", "rate limit"], &["429"], Case::ImageRateLimit),
    (
        &["unauthorized", "denied", "forbidden", "authorization failed", "no basic auth"],
        &["401", "403"],
        Case::ImageUnauthorized,
    ),
    (
        &["no such host", "timeout", "connection refused", "deadline exceeded", "x509", "unreachable"],
        &["tls", "eof"],
        Case::ImageRegistryUnreachable,
    ),
    (&["not found", "manifest unknown", "notfound"], &[], Case::ImageNotFound),
];

/// Returns the kind of an error of a pull, if it is known. Names in the error say nothing about its kind.
pub(super) fn kind(error: &str, image: &str) -> Option<Case> {
    let words = words(&error.to_lowercase(), &image.to_lowercase());
    let text = words.join(" ");
    let holds = |(parts, codes, _): &&(&[&str], &[&str], Case)| {
        parts.iter().any(|part| text.contains(part))
            || codes.iter().any(|code| words.iter().any(|it| it == code))
    };
    ERRORS.iter().find(holds).map(|(.., case)| *case)
}

/// Returns the registry of an image. Without a dot, a colon or `localhost`, the first part is a folder of Docker Hub.
pub(super) fn registry(image: &str) -> &str {
    match image.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => first,
        _ => "docker.io",
    }
}

/// Returns the words of an error without those that name the image, its parts, or an address.
fn words(error: &str, image: &str) -> Vec<String> {
    let name = image.split_once('@').map_or(image, |(name, _)| name);
    let (name, tag) = name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).unwrap_or((name, "latest"));
    let last = name.rsplit('/').next().unwrap_or(name);
    let host = registry(image).split(':').next().unwrap_or_default();
    // An image without a tag, a message of CRI-O, and one of containerd.
    let error = error
        .replace(&format!("\"{image}\""), " ")
        .replace(&format!("manifest {tag} in "), " ")
        .replace(&format!("manifests {tag}]"), " ");
    let is_name = |word: &&str| {
        word.contains('/')
            || word.split(':').next() == Some(host)
            || word.strip_prefix(last).is_some_and(|rest| rest.starts_with([':', '@']))
    };
    let words = error.split(|letter: char| letter.is_whitespace() || "\"'\\,;()[]{}<>".contains(letter));
    let words = words.map(|word| word.trim_matches([':', '.'])).filter(|word| !is_name(word));
    // `status=401`; not before, because addresses have `=` too.
    let words = words.flat_map(|word| word.split('='));
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_words_and_names_are_left_out() {
        for (image, error, expected) in [
            ("r.io/web:1", "unexpected status: 429 Too Many Requests", Case::ImageRateLimit),
            ("r.io/web:1", "invalid status code from registry 429 (Too Many)", Case::ImageRateLimit),
            ("r.io/web:1", "failed with status=401", Case::ImageUnauthorized),
            ("r.io/web:1", r#"{"code":403}"#, Case::ImageUnauthorized),
            ("r.io/web:1", r#"{"errors":[{"code":"DENIED","detail":"shop/web"}]}"#, Case::ImageUnauthorized),
            ("r.io/web:1", "rpc error: code = PermissionDenied", Case::ImageUnauthorized),
            ("r.io/web:1", r#"Get "https://r.io/v2/": EOF"#, Case::ImageRegistryUnreachable),
            ("r.io/web:1", "dial tcp 10.0.0.1:443: i/o timeout", Case::ImageRegistryUnreachable),
            ("r.io/web:1", "remote error: tls: bad certificate", Case::ImageRegistryUnreachable),
            (
                "r.io/web:1",
                "HEAD request to https://r.io/v2/web/manifests/429: 404 Not Found",
                Case::ImageNotFound,
            ),
            ("r.io/web:429", "reading manifest 429 in r.io/web: manifest unknown", Case::ImageNotFound),
            ("r.io/web:429", "unexpected status code [manifests 429]: 404 Not Found", Case::ImageNotFound),
            ("web:429", "docker.io/library/web:429: not found", Case::ImageNotFound),
            (
                "forbidden",
                r#"image "forbidden": docker.io/library/forbidden:latest: not found"#,
                Case::ImageNotFound,
            ),
            (
                "x509.io/web:1",
                "lookup x509.io on 10.0.0.10:53: server misbehaving: not found",
                Case::ImageNotFound,
            ),
            ("r:5000/web:1", "dial tcp: lookup r: server misbehaving: unauthorized", Case::ImageUnauthorized),
            ("r.io/web:unknown", "manifest unknown: manifest unknown", Case::ImageNotFound),
        ] {
            assert_eq!(kind(error, image), Some(expected), "{error}");
        }
        assert_eq!(kind("something with 4290 and 10.4.0.3:403", "r.io/web:1"), None);
    }
}
