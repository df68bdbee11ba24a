//! How kube-proxy leads traffic.

use std::{fmt, str::FromStr};

/// The mode of kube-proxy on a bed of shape [`Shape::Node`](crate::Shape::Node).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyMode {
    /// Kubernetes' default on Linux, with the iptables command that writes nftables rules.
    #[default]
    Iptables,
    /// Rules of nftables, with maps.
    Nftables,
}

impl ProxyMode {
    /// The name that kube-proxy's configuration has for it, which is also that on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Nftables => "nftables",
        }
    }
}

impl fmt::Display for ProxyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ProxyMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Iptables, Self::Nftables]
            .into_iter()
            .find(|mode| mode.as_str() == text)
            .ok_or_else(|| format!("no mode of kube-proxy is called {text:?}: use iptables or nftables"))
    }
}
