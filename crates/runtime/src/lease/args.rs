//! Arguments of leader election.

use std::time::Duration;

use clap::Args;

use super::params::LeaseParams;
use crate::args::parsers::seconds;

/// Arguments of leader election.
#[derive(Clone, Debug, Args)]
pub struct LeaseArgs {
    /// Namespace of the Lease
    #[arg(long, env = "PODWARD_LEASE_NAMESPACE", default_value = "podward-system")]
    pub lease_namespace: String,
    /// Name of the Lease; the service's own name when not given
    #[arg(long, env = "PODWARD_LEASE_NAME")]
    pub lease_name: Option<String>,
    /// Name of this replica in the election; the host name and a random part when not given
    #[arg(long, env = "PODWARD_IDENTITY")]
    pub identity: Option<String>,
    /// UID of the pod in which this process is the only one that takes part in the election: a Lease that an earlier
    /// process of the pod held when it ended is free. Has no effect with --identity
    #[arg(long, env = "PODWARD_POD_UID")]
    pub pod_uid: Option<String>,
    /// Seconds after which a leader that does not renew the Lease is replaced
    #[arg(long, env = "PODWARD_LEASE_DURATION", default_value = "10", value_parser = term)]
    pub lease_duration: Duration,
}

impl LeaseArgs {
    /// Returns the parameters of the election for `service`.
    #[must_use]
    pub fn params(&self, service: &str) -> LeaseParams {
        let (identity, predecessors) = self.identity();
        LeaseParams {
            namespace: self.lease_namespace.clone(),
            name: self.lease_name.clone().unwrap_or_else(|| service.to_owned()),
            identity,
            predecessors,
            duration: self.lease_duration,
            address: None,
        }
    }

    /// Returns the name of this replica in the election, and with what the names of earlier processes of its pod begin. The
    /// random part makes a restarted process another candidate, because it does not know the work of the process before it.
    fn identity(&self) -> (String, Option<String>) {
        if let Some(identity) = self.identity.as_ref().filter(|identity| !identity.is_empty()) {
            return (identity.clone(), None);
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = Some(host.trim()).filter(|host| !host.is_empty()).unwrap_or("podward");
        let uid = self.pod_uid.as_deref().filter(|uid| !uid.is_empty());
        let of_pod = uid.map(|uid| format!("{host}_{uid}_"));
        let start = of_pod.clone().unwrap_or_else(|| format!("{host}_"));
        (format!("{start}{:08x}", fastrand::u32(..)), of_pod)
    }
}

/// Parses the duration of a Lease. A leader renews it after a third, and would write all the time without a minimum.
fn term(text: &str) -> Result<Duration, String> {
    let term = seconds(text)?;
    if term < Duration::from_secs(1) { Err(format!("{text} must be at least 1")) } else { Ok(term) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Service {
        #[command(flatten)]
        lease: LeaseArgs,
    }

    #[test]
    fn identities_differ_from_process_to_process() {
        let args = Service::parse_from(["x"]).lease;
        let params = || args.params("service");
        assert_ne!(params().identity, params().identity);
        assert_eq!(params().predecessors, None);
        let named =
            LeaseArgs { identity: Some("me".to_owned()), pod_uid: Some("u".to_owned()), ..args.clone() };
        let named = named.params("service");
        assert_eq!((named.identity.as_str(), named.predecessors), ("me", None));
    }

    /// A Lease without a holder has an empty name of its holder.
    #[test]
    fn an_empty_identity_is_none() {
        let params = Service::parse_from(["x", "--identity", "", "--pod-uid", "u"]).lease.params("service");
        assert!(!params.identity.is_empty() && params.predecessors.is_some(), "{params:?}");
    }

    #[test]
    fn a_lease_lasts_at_least_a_second() {
        let parse = |seconds: &str| Service::try_parse_from(["x", "--lease-duration", seconds]);
        assert!(parse("0").is_err() && parse("0.5").is_err());
        assert_eq!(parse("1").unwrap().lease.lease_duration, Duration::from_secs(1));
    }

    #[test]
    fn processes_of_a_pod_are_predecessors_of_each_other() {
        let of = |uid: &str| Service::parse_from(["x", "--pod-uid", uid]).lease.params("service");
        let (first, second, other) = (of("u-1"), of("u-1"), of("u-2"));
        assert_ne!(first.identity, second.identity);
        assert!(second.is_predecessor(&first.identity));
        assert!(!other.is_predecessor(&first.identity));
        assert!(!of("").is_predecessor(&of("").identity), "no UID");
    }
}
