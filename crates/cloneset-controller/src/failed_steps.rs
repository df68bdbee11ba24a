//! Steps of pods that failed, and when that is reported.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use podward_core::cloneset::PodStep;

use crate::errors::SetError;

/// The time after which a failure that lasts is reported again. It doubles with each report.
const FIRST_INTERVAL: Duration = Duration::from_secs(60);
const LONGEST_INTERVAL: Duration = Duration::from_secs(30 * 60);

/// The steps of one reconciliation that failed.
#[derive(Debug, Default)]
pub(crate) struct FailedSteps(Vec<FailedStep>);

#[derive(Debug)]
struct FailedStep {
    /// The index of the pod in the pods of the plan.
    pod: usize,
    is_delete: bool,
    reason: &'static str,
    error: SetError,
}

/// What is reported of the steps that failed for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailureReport {
    /// The reason of the event.
    pub(crate) reason: &'static str,
    /// For people: the first of the pods and its error.
    pub(crate) text: String,
    /// The error without the name of the pod.
    cause: String,
}

impl FailedSteps {
    pub(crate) fn add(&mut self, step: &PodStep, error: SetError) {
        let reason = match (step.delete, step.update) {
            (true, _) => "FailedDelete",
            (false, true) => "FailedUpdatePodInPlace",
            (false, false) => "FailedUpdatePod",
        };
        self.0.push(FailedStep { pod: step.pod, is_delete: step.delete, reason, error });
    }

    /// Returns what is reported: nothing of steps that another writer has overtaken.
    pub(crate) fn reports(&self) -> Vec<FailureReport> {
        let mut by_reason: BTreeMap<&'static str, Vec<&FailedStep>> = BTreeMap::new();
        for failed in self.0.iter().filter(|failed| !failed.error.is_outdated()) {
            by_reason.entry(failed.reason).or_default().push(failed);
        }
        let report = |(reason, failed): (_, Vec<&FailedStep>)| {
            let first = &failed.iter().min_by_key(|failed| failed.pod)?.error;
            let text = match failed.len() {
                1 => first.to_string(),
                count => format!("{count} pods; the first: {first}"),
            };
            Some(FailureReport { reason, text, cause: first.cause() })
        };
        by_reason.into_iter().filter_map(report).collect()
    }

    /// Returns the first failure to delete a pod, and the first one to change a pod. They are those of the same pods each
    /// time, whichever answer came first. Steps that another writer has overtaken come last.
    pub(crate) fn into_first(mut self) -> (Option<SetError>, Option<SetError>) {
        self.0.sort_by_key(|failed| (failed.error.is_outdated(), failed.pod));
        let (deletions, changes): (Vec<_>, Vec<_>) = self.0.into_iter().partition(|failed| failed.is_delete);
        let first = |failed: Vec<FailedStep>| failed.into_iter().next().map(|failed| failed.error);
        (first(deletions), first(changes))
    }
}

/// The failures of a set that were reported, by their reasons.
#[derive(Debug, Default)]
pub(crate) struct ReportedFailures(BTreeMap<&'static str, ReportedFailure>);

#[derive(Debug)]
struct ReportedFailure {
    cause: String,
    at: Instant,
    interval: Duration,
}

impl ReportedFailures {
    /// Returns true if a failure is to be reported: it is new, or its cause has changed, or it lasts.
    pub(crate) fn is_due(&mut self, report: &FailureReport, now: Instant) -> bool {
        let last = self.0.get(report.reason).filter(|last| last.cause == report.cause);
        let interval = match last {
            Some(last) if now.saturating_duration_since(last.at) < last.interval => return false,
            Some(last) => last.interval.saturating_mul(2).min(LONGEST_INTERVAL),
            None => FIRST_INTERVAL,
        };
        let reported = ReportedFailure { cause: report.cause.clone(), at: now, interval };
        self.0.insert(report.reason, reported);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(pod: usize, code: u16, delete: bool) -> (PodStep, SetError) {
        let name = format!("web-{pod}");
        let message = format!("pods \"{name}\": {code}");
        let status = serde_json::json!({"status": "Failure", "code": code, "message": message, "reason": ""});
        let source = Box::new(kube::Error::Api(serde_json::from_value(status).unwrap()));
        let error = SetError::Api { what: "write pod", object: format!("shop/{name}"), source };
        (PodStep { pod, delete, ..PodStep::default() }, error)
    }

    fn steps(failures: &[(usize, u16, bool)]) -> FailedSteps {
        let mut steps = FailedSteps::default();
        for &(pod, code, delete) in failures {
            let (step, error) = failed(pod, code, delete);
            steps.add(&step, error);
        }
        steps
    }

    #[test]
    fn the_first_pod_stands_for_all() {
        let failures = steps(&[(0, 409, false), (2, 403, false), (1, 403, false), (3, 403, true)]);
        let reports = failures.reports();
        let reasons: Vec<_> = reports.iter().map(|report| report.reason).collect();
        assert_eq!(reasons, ["FailedDelete", "FailedUpdatePod"]);
        assert!(reports[0].text.starts_with("could not write pod shop/web-3: "), "{}", reports[0].text);
        let text = &reports[1].text;
        assert!(text.starts_with("2 pods; the first: could not write pod shop/web-1: "), "{text}");
        let (scale, update) = failures.into_first();
        assert!(
            scale.unwrap().to_string().contains("web-3") && update.unwrap().to_string().contains("web-1")
        );
        let (scale, update) = steps(&[(0, 409, false)]).into_first();
        assert!(scale.is_none() && update.is_some_and(|error| error.is_outdated()));
    }

    #[test]
    fn a_failure_that_lasts_is_reported_at_growing_intervals() {
        let start = Instant::now();
        let mut reported = ReportedFailures::default();
        // Each time, other pods fail for the same reason.
        let mut report = |second: u64| {
            let failures = steps(&[(usize::try_from(second).unwrap(), 403, false)]);
            reported.is_due(&failures.reports()[0], start + Duration::from_secs(second))
        };
        let times: Vec<u64> = (0..6 * 3600).step_by(10).filter(|second| report(*second)).collect();
        assert_eq!(times[..6], [0, 60, 180, 420, 900, 1860]);
        assert!(times[6..].windows(2).all(|pair| pair[1] - pair[0] == 1800), "{times:?}");
        let other = steps(&[(0, 422, false)]).reports().remove(0);
        assert!(reported.is_due(&other, start), "another cause");
        let other = steps(&[(0, 422, true)]).reports().remove(0);
        assert!(reported.is_due(&other, start), "another reason");
    }
}
