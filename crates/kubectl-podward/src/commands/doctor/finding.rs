//! The findings of checks.

use podward_core::webhook_path::without_webhook_secrets;
use serde::Serialize;

/// The maximum number of names in a list.
const MAX_NAMES: usize = 3;

/// The severity of a finding. Only [`FindingLevel::Failed`] makes the command fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::commands) enum FindingLevel {
    /// No problem.
    Ok,
    /// Not checked. The finding says why.
    Skipped,
    /// Information.
    Note,
    /// It works, but needs attention.
    Warning,
    /// It does not work.
    Failed,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::commands) struct Finding {
    pub(in crate::commands) level: FindingLevel,
    /// The observation.
    pub(in crate::commands) what: String,
    /// The next step. `None` if nothing is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) next: Option<String>,
}

impl Finding {
    pub(in crate::commands) fn ok(what: impl Into<String>) -> Self {
        Self { level: FindingLevel::Ok, what: what.into(), next: None }
    }

    pub(in crate::commands) fn skipped(what: impl Into<String>) -> Self {
        Self { level: FindingLevel::Skipped, what: what.into(), next: None }
    }

    pub(in crate::commands) fn note(what: impl Into<String>) -> Self {
        Self { level: FindingLevel::Note, what: what.into(), next: None }
    }

    pub(in crate::commands) fn warning(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { level: FindingLevel::Warning, what: what.into(), next: Some(next.into()) }
    }

    pub(in crate::commands) fn failed(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { level: FindingLevel::Failed, what: what.into(), next: Some(next.into()) }
    }

    /// Returns the finding for a check that could not be run.
    pub(in crate::commands) fn check_failed(error: &anyhow::Error) -> Self {
        let denied = is_denied(error.chain().find_map(|cause| cause.downcast_ref::<kube::Error>()));
        let next = if denied {
            "run the doctor as a user with this permission, such as an administrator of the cluster, or run helm test"
        } else {
            "check that the API server answers (kubectl get --raw /readyz), and try again"
        };
        let error = format!("{error:#}");
        Self::failed(format!("could not be checked: {}", without_webhook_secrets(&error)), next)
    }
}

/// Lists the first names: `a, b, c and 2 more`.
pub(super) fn first_names<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let mut names = names.into_iter().map(String::as_str);
    let first = names.by_ref().take(MAX_NAMES).collect::<Vec<_>>().join(", ");
    match names.count() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Returns true if the API server denied the request.
pub(in crate::commands) fn is_denied(error: Option<&kube::Error>) -> bool {
    matches!(error, Some(kube::Error::Api(status)) if matches!(status.code, 401 | 403))
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_denied_request_has_its_own_advice() {
        let error = |code| {
            let status = Status { code, message: "no".to_owned(), ..Status::default() };
            Err::<(), _>(kube::Error::Api(Box::new(status))).context("list Deployments").unwrap_err()
        };
        assert!(Finding::check_failed(&error(403)).next.unwrap().contains("as a user with this permission"));
        assert!(Finding::check_failed(&error(503)).next.unwrap().contains("/readyz"));
    }
}
