//! The URLs that Dubbo 2 keeps in the names of nodes: `dubbo://<host>:<port>/<interface>?<key>=<value>&...`, with percent
//! encoding of the whole.

use std::collections::BTreeMap;
use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What `URLEncoder` of Java encodes. A space may be `%20`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'*').remove(b'_');

/// A URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DubboUrl {
    pub(super) protocol: String,
    pub(super) host: String,
    /// 0 if there is none.
    pub(super) port: u16,
    pub(super) path: String,
    pub(super) parameters: BTreeMap<String, String>,
}

impl DubboUrl {
    /// Reads the name of a node. `None` if it is not a URL.
    pub(super) fn decode(name: &str) -> Option<Self> {
        let text = name.replace('+', " ");
        let text = percent_decode_str(&text).decode_utf8().ok()?;
        let (protocol, rest) = text.split_once("://")?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // The user and the password.
        let authority = authority.rsplit_once('@').map_or(authority, |(_, authority)| authority);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok()?),
            None => (authority, 0),
        };
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        // Without a value, Dubbo takes the key for it.
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, pair)));
        Some(Self {
            protocol: protocol.to_owned(),
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port,
            path: path.to_owned(),
            parameters: pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        })
    }

    /// Returns the name of the node.
    pub(super) fn encode(&self) -> String {
        encoded(&self.to_string())
    }

    /// Returns a parameter. Dubbo treats an empty one as missing.
    pub(super) fn parameter(&self, key: &str) -> Option<&str> {
        self.parameters.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns whether consumers use this provider, apart from overrides (`RegistryDirectory.toInvokers`).
    pub(super) fn is_enabled(&self) -> bool {
        match (self.parameter("disabled"), self.parameter("enabled")) {
            (Some(text), _) => !is_true(text),
            (None, Some(text)) => is_true(text),
            (None, None) => true,
        }
    }

    /// Returns whether all consumers apply overrides to this provider. With a group or version, those of Dubbo 3 do not
    /// (`RegistryDirectory.overrideWithConfigurators` drops both before they are compared), but a provider of Dubbo 2.7 and
    /// later registers its URL again with what an override says. Older ones have no parameter `release`.
    pub(super) fn is_overridden(&self) -> bool {
        (self.parameter("group").is_none() && self.parameter("version").is_none())
            || self.parameter("release").is_none()
    }

    /// Returns whether this is an override that takes `provider` out of service (`AbstractConfigurator` without a version of
    /// the configuration). Overrides with further conditions are taken for those that do not apply.
    pub(super) fn disables(&self, provider: &Self) -> bool {
        let is_any_host = self.host == "0.0.0.0";
        let is_at = match self.port {
            0 => is_any_host,
            port => port == provider.port && (is_any_host || self.host == provider.host),
        };
        let is_same = |key| {
            let value = self.parameter(key);
            value == Some("*") || value == provider.parameter(key)
        };
        let is_conditional = self.parameters.iter().any(|(key, value)| {
            (key.starts_with('~') || key == "application" || key == "side" || key == "configVersion")
                && value != "*"
        });
        self.protocol == "override"
            && is_at
            && is_same("group")
            && is_same("version")
            && !is_conditional
            && self.parameter("enabled").is_none_or(is_true)
            && self.parameter("disabled").is_some_and(is_true)
    }

    /// Returns the override that takes `provider` of an interface out of service. Dubbo 2.7 and 3 understand it: they compare
    /// the interface, the group and the version with those of the provider and of the consumer.
    pub(super) fn disabling(provider: &Self, interface: &str) -> Self {
        let fixed =
            [("category", "configurators"), ("disabled", "true"), ("dynamic", "false"), ("enabled", "true")];
        let mut parameters: BTreeMap<String, String> =
            fixed.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        for key in ["group", "version"] {
            if let Some(value) = provider.parameter(key) {
                parameters.insert(key.to_owned(), value.to_owned());
            }
        }
        Self {
            protocol: "override".to_owned(),
            host: provider.host.clone(),
            port: provider.port,
            path: interface.to_owned(),
            parameters,
        }
    }
}

impl fmt::Display for DubboUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, host, port, path, parameters } = self;
        write!(f, "{protocol}://{host}:{port}/{path}")?;
        for (at, (key, value)) in parameters.iter().enumerate() {
            write!(f, "{}{key}={value}", if at == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

/// As `Boolean.parseBoolean` of Java.
fn is_true(text: &str) -> bool {
    text.eq_ignore_ascii_case("true")
}

/// Returns a name as Dubbo encodes it.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Returns the name that Dubbo has encoded. `None` if it is not UTF-8.
pub(super) fn decoded(name: &str) -> Option<String> {
    let name = name.replace('+', " ");
    percent_decode_str(&name).decode_utf8().ok().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Dubbo 2.7 registers it.
    const NAME: &str = "dubbo%3A%2F%2F10.0.0.7%3A20880%2Forg.apache.dubbo.demo.DemoService%3Fanyhost%3Dtrue%26application%3D\
                        demo-provider%26dynamic%3Dtrue%26group%3Dg%26methods%3DsayHello%2CsayHelloAsync%26version%3D1.0.0";

    fn provider(parameters: &str) -> DubboUrl {
        DubboUrl::decode(&format!("dubbo://10.0.0.7:20880/a.B?{parameters}")).unwrap()
    }

    fn overriding(authority: &str, parameters: &str) -> DubboUrl {
        DubboUrl::decode(&encoded(&format!("override://{authority}/a.B?{parameters}"))).unwrap()
    }

    #[test]
    fn a_url_is_read_from_the_name_of_a_node() {
        let url = DubboUrl::decode(NAME).unwrap();
        assert_eq!((url.protocol.as_str(), url.host.as_str(), url.port), ("dubbo", "10.0.0.7", 20880));
        assert_eq!(url.path, "org.apache.dubbo.demo.DemoService");
        assert_eq!(url.parameter("methods"), Some("sayHello,sayHelloAsync"));
        assert_eq!(url.encode(), NAME);
        let url =
            DubboUrl::decode("tri%3A%2F%2Fuser%40fd00%3A%3A7%3A50051%2Fa.B%3Fname%3Da+b%26bare").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.parameter("name")), ("fd00::7", 50051, Some("a b")));
        assert_eq!(url.parameter("bare"), Some("bare"));
        for bad in ["", "10.0.0.7", "dubbo://10.0.0.7:port/a", "%ff://a"] {
            assert_eq!(DubboUrl::decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn disabled_counts_before_enabled() {
        for (parameters, expected) in [
            ("", true),
            ("disabled=true", false),
            ("disabled=false&enabled=false", true),
            ("enabled=false", false),
            ("disabled=&enabled=true", true),
        ] {
            assert_eq!(provider(parameters).is_enabled(), expected, "{parameters}");
        }
    }

    #[test]
    fn an_override_applies_to_one_provider_of_the_service() {
        let plain = provider("");
        let versioned = provider("version=1.0&group=g");
        for provider in [&plain, &versioned] {
            let ours = DubboUrl::disabling(provider, "a.B");
            let ours = DubboUrl::decode(&ours.encode()).unwrap();
            assert_eq!(
                (ours.disables(&plain), ours.disables(&versioned)),
                (provider == &plain, provider != &plain)
            );
        }
        assert_eq!(
            DubboUrl::disabling(&versioned, "a.B").to_string(),
            "override://10.0.0.7:20880/a.B?category=configurators&disabled=true&dynamic=false&enabled=true&group=g&version=1.0"
        );
        for (authority, parameters, expected) in [
            ("0.0.0.0", "disabled=true", true),
            ("0.0.0.0:20880", "disabled=true", true),
            ("0.0.0.0:20881", "disabled=true", false),
            ("10.0.0.7", "disabled=true", false),
            ("10.0.0.8:20880", "disabled=true", false),
            ("10.0.0.7:20880", "disabled=false", false),
            ("10.0.0.7:20880", "disabled=true&enabled=false", false),
            ("10.0.0.7:20880", "disabled=true&application=x", false),
            ("10.0.0.7:20880", "disabled=true&application=*&group=*", true),
            ("10.0.0.7:20880", "disabled=true&~zone=a", false),
        ] {
            let url = overriding(authority, parameters);
            assert_eq!(url.disables(&plain), expected, "{authority} {parameters}");
        }
    }
}
