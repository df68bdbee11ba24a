//! Whether a kube-proxy has received what this process has observed.

use podward_core::UnixNanos;

use crate::index::{AddressFamily, ApiServers, EndpointChange};
use crate::proxy::{KubeProxyState, RulesState};

/// What is known about the changes that a kube-proxy has received.
///
/// What a kube-proxy has written is compared with what this process has observed. Both are in the same order only if
/// both watch the same API server. The watches of another one may lag by any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Receipt {
    /// It watches the same API server.
    SameServer,
    /// It had received the change at this time.
    Received(UnixNanos),
    /// It may not have received the change. The text is the reason.
    Unknown(String),
}

impl Receipt {
    /// Returns what is known in a cluster with `servers` API servers. `canary` is the time at which the kube-proxy is
    /// known to have received the change, or why there is none. It is an EndpointSlice: it does not show that the
    /// kube-proxy has received changes of Services, which come in another watch. `service_changed` is true if there was
    /// one.
    pub(crate) fn new(
        servers: ApiServers,
        service_changed: bool,
        canary: impl FnOnce() -> Result<UnixNanos, String>,
    ) -> Self {
        let servers = match servers {
            ApiServers::One => return Receipt::SameServer,
            ApiServers::Several(number) => number.to_string(),
            ApiServers::Unknown => "an unknown number of".to_owned(),
        };
        let received =
            match service_changed {
                true => Err("a Service of the pod has changed, and the canary shows changes of slices only"
                    .to_owned()),
                false => canary(),
            };
        received.map_or_else(
            |why| Receipt::Unknown(format!("it watches one of {servers} API servers, which may lag: {why}")),
            Receipt::Received,
        )
    }

    /// Returns the progress of the changes `changed` at `proxy`.
    pub(crate) fn rules_state(
        self,
        proxy: &KubeProxyState,
        changed: &[Option<EndpointChange>; AddressFamily::COUNT],
    ) -> RulesState {
        match self {
            Receipt::SameServer => proxy.rules_state(changed),
            Receipt::Received(at) => {
                let later = |change: EndpointChange| EndpointChange { seen: change.seen.max(at), ..change };
                match proxy.rules_state(&changed.map(|change| change.map(later))) {
                    // That it has received the change is known from the canary.
                    RulesState::Unconfirmed(_) => RulesState::Written,
                    other => other,
                }
            }
            Receipt::Unknown(why) => match proxy.rules_state(changed) {
                RulesState::Written => RulesState::Unconfirmed(why.into()),
                other => other,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Services and slices come in different watches, so one of them says nothing about the other.
    #[test]
    fn the_canary_does_not_show_that_changes_of_services_were_received() {
        let received = || Ok(UnixNanos(5));
        let receipt = |servers, service_changed| Receipt::new(servers, service_changed, received);
        for servers in [ApiServers::Several(2), ApiServers::Unknown] {
            assert_eq!(receipt(servers, false), Receipt::Received(UnixNanos(5)));
            let Receipt::Unknown(why) = receipt(servers, true) else { panic!("{servers:?}") };
            assert!(why.contains("a Service of the pod has changed"), "{why}");
        }
        assert_eq!(receipt(ApiServers::One, true), Receipt::SameServer, "one server sends all in order");
    }
}
