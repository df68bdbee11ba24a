//! Image names with their registry.

use std::{fmt, net::IpAddr, str::FromStr};

use anyhow::{Error, Result, ensure};

/// The name of an image with its registry, as `registry.example.com/podward/mutating-webhook:0.1.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageName {
    host: String,
    repository: String,
    tag: String,
}

impl ImageName {
    /// Returns the host of the registry, with the port if it has one.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the path of the image in the registry.
    pub(crate) fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns the tag. It is `latest` if the name has none.
    pub(crate) fn tag(&self) -> &str {
        &self.tag
    }
}

impl FromStr for ImageName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let (host, rest) = name.split_once('/').unwrap_or_default();
        // The rule of container tools: a first part without a dot or a port belongs to the repository.
        let named = host == "localhost" || host.contains(['.', ':']);
        ensure!(named, "the image name {name} does not begin with a registry, such as registry.example.com");
        ensure!(
            !host.ends_with(".local"),
            "{host} is not a registry, only a name for loaded images; set --registry"
        );
        let (repository, tag) = rest.rsplit_once(':').unwrap_or((rest, "latest"));
        ensure!(
            !repository.is_empty() && !tag.is_empty(),
            "the image name {name} has no repository or an empty tag"
        );
        Ok(Self { host: host.to_owned(), repository: repository.to_owned(), tag: tag.to_owned() })
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.host, self.repository, self.tag)
    }
}

/// Returns true if `host` is this machine. It is contacted without TLS.
pub(super) fn is_this_machine(host: &str) -> bool {
    let address = match host.rsplit_once(':') {
        Some((address, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => address,
        _ => host,
    };
    let address = address.trim_start_matches('[').trim_end_matches(']');
    address == "localhost" || address.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_registry_repository_and_tag() {
        let name: ImageName = "localhost:5000/team/podward/mutating-webhook:0.1.0".parse().expect("a name");
        assert_eq!((name.host(), name.tag()), ("localhost:5000", "0.1.0"));
        assert_eq!(name.repository(), "team/podward/mutating-webhook");
        for wrong in ["podward/mutating-webhook:1", "podward", "registry.example.com/:1", "podward.local/a:1"]
        {
            wrong.parse::<ImageName>().expect_err(wrong);
        }
    }

    #[test]
    fn only_this_machine_is_spoken_to_in_the_clear() {
        for here in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.1.2.3", "[::1]:5000"] {
            assert!(is_this_machine(here), "{here}");
        }
        for elsewhere in
            ["registry.example.com", "10.0.0.1:5000", "localhost.example.com", "[2001:db8::1]:80"]
        {
            assert!(!is_this_machine(elsewhere), "{elsewhere}");
        }
    }
}
