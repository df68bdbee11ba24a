//! Parsers of values.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

/// Parses a network (`10.0.0.0/24`, `fd00::/8`), or an address, which stands for itself.
///
/// # Errors
///
/// When `text` is neither; the error says what is valid.
pub fn network(text: &str) -> Result<IpNet, String> {
    let network = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address),
        Err(_) => text
            .parse::<IpNet>()
            .map_err(|_| format!("{text:?} is no network, such as 10.0.0.0/24 or fd00::/8"))?,
    };
    match network {
        // Such addresses are compared as IPv4 addresses.
        IpNet::V6(network) if network.addr().to_ipv4_mapped().is_some() => {
            Err(format!("{text:?} is an IPv4-mapped network: write it as an IPv4 network"))
        }
        network => Ok(network.trunc()),
    }
}

/// Parses seconds, which may have a fraction (`0.5`), at most a day.
///
/// # Errors
///
/// When `text` is not such a number; the error says what is wrong with it.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err(format!("{text} must be between 0 and 86400"));
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
