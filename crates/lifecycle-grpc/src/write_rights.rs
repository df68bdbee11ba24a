//! Decides whether a caller may register a hook.

use kube::ResourceExt;
use podward_api::LifecycleHook;
use tonic::{Code, Status};

/// The rights of a caller to write one hook. An error is the status that tells the caller what is missing.
#[derive(Debug)]
pub(super) struct WriteRights {
    create: Result<(), Status>,
    update: Result<(), Status>,
}

/// The write that a registration leads to.
#[derive(Debug)]
pub(super) enum HookWrite {
    /// There is no hook of that name.
    Create,
    /// The stored hook has another spec.
    Change(Box<LifecycleHook>),
    /// The stored hook has the same spec.
    None(Box<LifecycleHook>),
}

impl WriteRights {
    /// Returns the rights of a caller that has at least one of them.
    ///
    /// # Errors
    /// The error of `create` if both are denied: a caller without rights does not learn whether the hook exists.
    /// UNAVAILABLE if a right could not be checked and the other one is missing.
    pub(super) fn new(create: Result<(), Status>, update: Result<(), Status>) -> Result<Self, Status> {
        match (&create, &update) {
            (Err(denied), Err(other)) if denied.code() == Code::PermissionDenied => {
                Err(if other.code() == Code::PermissionDenied { denied.clone() } else { other.clone() })
            }
            (Err(failed), Err(_)) => Err(failed.clone()),
            _ => Ok(Self { create, update }),
        }
    }

    /// Returns the write that stores `wanted` in place of `stored`.
    ///
    /// # Errors
    /// PERMISSION_DENIED if the caller lacks the right: `create` for a new hook, `update` for a change of an existing
    /// one. A registration that changes nothing needs either.
    pub(super) fn decide(
        &self,
        stored: Option<LifecycleHook>,
        wanted: &LifecycleHook,
    ) -> Result<HookWrite, Status> {
        let Some(stored) = stored else { return self.create.clone().map(|()| HookWrite::Create) };
        if stored.spec == wanted.spec {
            return Ok(HookWrite::None(Box::new(stored)));
        }
        match &self.update {
            Ok(()) => Ok(HookWrite::Change(Box::new(stored))),
            Err(status) => Err(Status::new(
                status.code(),
                format!("hook {:?} exists with another spec: {}", stored.name_any(), status.message()),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use podward_api::LifecycleHookSpec;

    use super::*;

    fn hook(order: i32) -> LifecycleHook {
        LifecycleHook::new("traffic-controller", LifecycleHookSpec { order, ..LifecycleHookSpec::default() })
    }

    fn denied(verb: &str) -> Result<(), Status> {
        Err(Status::permission_denied(format!("may not {verb}")))
    }

    #[test]
    fn create_does_not_include_update() {
        let rights = WriteRights::new(Ok(()), denied("update")).unwrap();
        assert!(matches!(rights.decide(None, &hook(0)), Ok(HookWrite::Create)));
        assert!(matches!(rights.decide(Some(hook(0)), &hook(0)), Ok(HookWrite::None(_))));
        let refused = rights.decide(Some(hook(1)), &hook(0)).unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert_eq!(refused.message(), "hook \"traffic-controller\" exists with another spec: may not update");
    }

    #[test]
    fn update_does_not_include_create() {
        let rights = WriteRights::new(denied("create"), Ok(())).unwrap();
        assert_eq!(rights.decide(None, &hook(0)).unwrap_err().message(), "may not create");
        assert!(matches!(rights.decide(Some(hook(0)), &hook(0)), Ok(HookWrite::None(_))));
        assert!(matches!(rights.decide(Some(hook(1)), &hook(0)), Ok(HookWrite::Change(_))));
    }

    #[test]
    fn a_caller_without_rights_learns_nothing() {
        let refused = |create, update| {
            let status = WriteRights::new(create, update).unwrap_err();
            (status.code(), status.message().to_owned())
        };
        let both = refused(denied("create"), denied("update"));
        assert_eq!(both, (Code::PermissionDenied, "may not create".to_owned()));
        let down = || Err(Status::unavailable("no answer"));
        assert_eq!(refused(down(), denied("update")).0, Code::Unavailable);
        assert_eq!(refused(denied("create"), down()).0, Code::Unavailable);
    }
}
