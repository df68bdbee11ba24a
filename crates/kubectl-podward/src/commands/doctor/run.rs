//! Runs a check with a deadline.

use std::time::Duration;

use anyhow::Result;
use futures::future::BoxFuture;
use tokio::time::timeout;

use super::finding::Finding;
use super::report::CheckReport;

pub(super) type CheckFuture<'a> = BoxFuture<'a, Result<Vec<Finding>>>;

/// Returns the findings of a check. One that cannot be run, or takes too long, is a finding too.
pub(super) async fn run_check(name: &'static str, check: CheckFuture<'_>, deadline: Duration) -> CheckReport {
    let findings = match timeout(deadline, check).await {
        Ok(Ok(findings)) => findings,
        Ok(Err(error)) => vec![Finding::check_failed(&error)],
        Err(_) => vec![Finding::failed(
            format!("the check did not finish within {} s", deadline.as_secs()),
            "check that the API server answers (kubectl get --raw /readyz), or set a longer --deadline",
        )],
    };
    CheckReport { name, findings }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::super::report::DoctorReport;
    use super::*;

    #[tokio::test]
    async fn a_check_that_cannot_be_run_is_a_finding() {
        let never = run_check("never", futures::future::pending().boxed(), Duration::ZERO).await;
        assert!(never.findings[0].what.contains("within 0 s"), "{never:?}");
        let error = anyhow::anyhow!("no route").context("read the Lease");
        let broken = run_check("broken", async { Err(error) }.boxed(), Duration::from_secs(5)).await;
        assert_eq!(broken.findings[0].what, "could not be checked: read the Lease: no route");
        assert!(DoctorReport::new("x".to_owned(), vec![never]).failed());
        assert!(DoctorReport::new("x".to_owned(), vec![broken]).failed());
    }
}
