//! What a check says.

use serde::Serialize;

/// How bad it is. Only [`Level::Failed`] makes the doctor end with a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// Not looked at, and why.
    Skipped,
    /// Good to know.
    Note,
    /// Works, and deserves a look.
    Warning,
    /// Doesn't work.
    Failed,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// What was found.
    pub(super) what: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}

impl Finding {
    pub(super) fn ok(what: impl Into<String>) -> Self {
        Self { level: Level::Ok, what: what.into(), next: None }
    }

    pub(super) fn skipped(what: impl Into<String>) -> Self {
        Self { level: Level::Skipped, what: what.into(), next: None }
    }

    pub(super) fn note(what: impl Into<String>) -> Self {
        Self { level: Level::Note, what: what.into(), next: None }
    }

    pub(super) fn warning(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { level: Level::Warning, what: what.into(), next: Some(next.into()) }
    }

    pub(super) fn failed(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { level: Level::Failed, what: what.into(), next: Some(next.into()) }
    }

    /// For a check that could not be done.
    pub(super) fn undone(error: &anyhow::Error) -> Self {
        let denied = is_denied(error.chain().find_map(|cause| cause.downcast_ref::<kube::Error>()));
        let next = if denied {
            "run the doctor as somebody who may: an administrator of the cluster, or helm test"
        } else {
            "see whether the API server answers (kubectl get --raw /readyz), and try again"
        };
        Self::failed(format!("could not be checked: {error:#}"), next)
    }
}

/// Whether the API server says that the doctor may not.
pub(super) fn is_denied(error: Option<&kube::Error>) -> bool {
    matches!(error, Some(kube::Error::Api(status)) if matches!(status.code, 401 | 403))
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use kube::core::Status;

    use super::*;

    #[test]
    fn who_may_not_look_is_told_so() {
        let error = |code| {
            let status = Status { code, message: "no".to_owned(), ..Status::default() };
            Err::<(), _>(kube::Error::Api(Box::new(status))).context("list Deployments").unwrap_err()
        };
        assert!(Finding::undone(&error(403)).next.unwrap().contains("as somebody who may"));
        assert!(Finding::undone(&error(503)).next.unwrap().contains("/readyz"));
    }
}
