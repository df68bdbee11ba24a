//! For which hook a pod waits.

use super::hook::Hook;
use super::pod::SetPod;
use super::set::SetSpec;
use super::state::State;

/// A hook of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HookKind {
    /// `preNormal`
    PreNormal,
    /// `inPlaceUpdate`
    InPlaceUpdate,
    /// `preDelete`
    PreDelete,
}

impl HookKind {
    /// Returns the hook for which pods in this state wait.
    #[must_use]
    pub const fn of(state: State) -> Option<Self> {
        match state {
            State::PreparingNormal => Some(HookKind::PreNormal),
            State::PreparingUpdate | State::Updated => Some(HookKind::InPlaceUpdate),
            State::PreparingDelete => Some(HookKind::PreDelete),
            State::Normal | State::Updating => None,
        }
    }

    /// Returns the name in the spec of a set.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            HookKind::PreNormal => "preNormal",
            HookKind::InPlaceUpdate => "inPlaceUpdate",
            HookKind::PreDelete => "preDelete",
        }
    }
}

/// The wait of a pod for the operator of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookWait {
    /// The hook.
    pub hook: HookKind,
    /// The markers, labels as `key=value`, that the operator has to remove, or to add.
    pub markers: Vec<String>,
    /// True if they have to be removed.
    pub removes: bool,
}

/// Returns the wait of a pod for the operator of a hook. `None` if it waits for none.
#[must_use]
pub fn wait(set: &SetSpec, pod: &SetPod) -> Option<HookWait> {
    let state = pod.state?;
    let kind = HookKind::of(state)?;
    let hooks = set.hooks();
    let hook: &Hook = match kind {
        HookKind::PreNormal => hooks.pre_normal.as_ref()?,
        HookKind::InPlaceUpdate => hooks.in_place_update.as_ref()?,
        HookKind::PreDelete => hooks.pre_delete.as_ref()?,
    };
    let removes = matches!(state, State::PreparingUpdate | State::PreparingDelete);
    let markers = hook.markers(pod, removes);
    (!markers.is_empty()).then_some(HookWait { hook: kind, markers, removes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_states_wait() {
        let hooks = State::ALL.map(|state| HookKind::of(state).map(HookKind::as_str));
        let expected =
            [Some("preNormal"), None, Some("inPlaceUpdate"), None, Some("inPlaceUpdate"), Some("preDelete")];
        assert_eq!(hooks, expected);
    }
}
