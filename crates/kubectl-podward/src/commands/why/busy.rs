//! Operations that wait for the pod's own work, which must not be interrupted.

use podward_core::busy::{BusyClaim, BusyLimits};
use podward_core::keys::BUSY_UNTIL;
use podward_core::rules::{CheckStage, check_requests};
use podward_core::{Operations, Pod, UnixNanos};

use super::report::{OperationWait, WhyReport};

/// Adds the operations that wait for the work of `pod`.
pub(super) fn add_waits(report: &mut WhyReport, pod: &Pod, operations: &Operations<'_>, now: UnixNanos) {
    let view = pod.view();
    report.notes.extend(BusyClaim::of(&view).fault());
    let Some(busy) = BusyClaim::of(&view).at(now) else { return };
    let requests = check_requests(view.labels);
    let limits = BusyLimits::of(&view);
    let mut waits = false;
    for request in requests.iter().filter(|request| request.stage == CheckStage::PreCheck) {
        let limit = limits.get(&request.operation);
        if limit.is_some_and(|limit| limit <= now) {
            continue;
        }
        waits = true;
        let (namespace, name) = (&report.namespace, &report.pod);
        let next = format!(
            "the operation continues when the pod reports the end of its work; if the work may be \
             interrupted: kubectl annotate pod -n {namespace} {name} {BUSY_UNTIL}-"
        );
        report.waits.push(OperationWait {
            operation: request.operation.clone(),
            operation_type: operations.type_of(&request.operation).unwrap_or_default().into_owned(),
            stage: request.stage.as_str(),
            who: "the pod's own work".to_owned(),
            kind: "busy".to_owned(),
            why: busy.words(),
            since: Some(request.since())
                .filter(|since| *since != i64::MAX)
                .map(|at| UnixNanos(at).to_rfc3339()),
            until: Some(busy.until.to_rfc3339()),
            at_most: limit.map(UnixNanos::to_rfc3339),
            next,
        });
    }
    if !waits {
        report.notes.push(format!("the pod is {}; no operation waits for it", busy.words()));
    }
}
