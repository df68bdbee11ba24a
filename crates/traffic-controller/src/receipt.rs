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
    /// known to have received the change, or why there is none.
    pub(crate) fn new(servers: ApiServers, canary: impl FnOnce() -> Result<UnixNanos, String>) -> Self {
        let servers = match servers {
            ApiServers::One => return Receipt::SameServer,
            ApiServers::Several(number) => number.to_string(),
            ApiServers::Unknown => "an unknown number of".to_owned(),
        };
        canary().map_or_else(
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
