//! The modes of kube-proxy.

use std::{fmt, str::FromStr};

/// The mode of kube-proxy on a cluster of shape [`Shape::Node`](crate::Shape::Node).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyMode {
    /// The default of Kubernetes on Linux. It uses the iptables command that writes nftables rules.
    #[default]
    Iptables,
    /// The mode that uses nftables directly.
    Nftables,
}

impl ProxyMode {
    /// Returns the name in kube-proxy's configuration and on the command line.
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
