//! Work that must not be interrupted.

use podward_core::busy::{Claim, told_limit};
use podward_core::keys::BUSY_UNTIL;
use podward_core::rules::{CheckStage, askings};
use podward_core::{Operations, Pod, UnixNanos};

use super::report::{Report, Wait};

/// What the work of `pod` keeps waiting.
pub(super) fn look(report: &mut Report, pod: &Pod, operations: &Operations<'_>, now: UnixNanos) {
    let view = pod.view();
    report.notes.extend(Claim::of(&view).fault());
    let Some(busy) = Claim::of(&view).at(now) else { return };
    let asked = askings(view.labels);
    let mut waits = false;
    for asking in asked.iter().filter(|asking| asking.stage == CheckStage::PreCheck) {
        let limit = told_limit(&report.message, &asking.operation);
        if limit.is_some_and(|limit| limit <= now) {
            continue;
        }
        waits = true;
        let (namespace, name) = (&report.namespace, &report.pod);
        let next = format!(
            "it goes on when the pod says that it is done; if the work may be interrupted: kubectl annotate pod -n {namespace} {name} {BUSY_UNTIL}-"
        );
        report.waits.push(Wait {
            operation: asking.operation.clone(),
            operation_type: operations.type_of(&asking.operation).unwrap_or_default().into_owned(),
            stage: asking.stage.as_str(),
            who: "the pod's own work".to_owned(),
            kind: "busy".to_owned(),
            why: busy.words(),
            since: Some(asking.since())
                .filter(|since| *since != i64::MAX)
                .map(|at| UnixNanos(at).to_rfc3339()),
            until: Some(busy.until.to_rfc3339()),
            at_most: limit.map(UnixNanos::to_rfc3339),
            next,
        });
    }
    if !waits {
        report.notes.push(format!("the pod is {}; nothing waits for it", busy.words()));
    }
}
