//! Whether the demo went as it should.

use std::{fmt, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde::Serialize;

use crate::{
    images::DemoImages,
    pods,
    timeline::{PodReport, Report},
};

/// What the demo claims, and whether it is so.
#[derive(Debug, Serialize)]
struct Claim {
    text: &'static str,
    holds: bool,
}

/// The outcome of the demo; serialises to everything that was recorded.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    claims: Vec<Claim>,
    took_ms: u128,
    from: String,
    to: String,
    #[serde(flatten)]
    report: Report,
}

impl Verdict {
    /// `names` are the pods that were there before the update.
    pub(super) fn of(
        report: Report,
        now: &[Arc<Pod>],
        names: &[String],
        images: &DemoImages,
        took: Duration,
    ) -> Self {
        let pods = || names.iter().map(|name| report.pod(name));
        let every = |test: &dyn Fn(&PodReport) -> bool| pods().all(|pod| pod.is_some_and(test));
        let operations = |pod: &PodReport, test: &dyn Fn(&crate::timeline::OperationRecord) -> bool| {
            let mut granted =
                pod.operations.iter().filter(|operation| operation.operate_ms.is_some()).peekable();
            granted.peek().is_some() && granted.all(test)
        };
        let is_updated = |pod: &Arc<Pod>| {
            let is_new = pods::container(pod)
                .is_some_and(|status| status.image == images.v2 && status.restart_count > 0);
            is_new && names.contains(&pod.name_any())
        };
        let claims = [
            (
                "every pod was updated in place: none was made anew",
                now.len() == names.len() && now.iter().all(is_updated),
            ),
            (
                "the gate was False before every permission",
                every(&|pod| operations(pod, &|o| o.gate_off_at_operate == Some(true))),
            ),
            (
                "no consumer held a pod at any permission",
                every(&|pod| operations(pod, &|o| o.free_at_operate == Some(true))),
            ),
            ("two operations overlapped on one pod", report.pods.iter().any(overlapped)),
            (
                "one operation was cancelled",
                report.pods.iter().flat_map(|pod| &pod.operations).any(|o| o.cancelled),
            ),
            (
                "nothing but service-available is left of the protocol's labels",
                every(&|pod| pod.labels_left.is_empty() && pod.available),
            ),
            ("no version of any pod broke an invariant", report.violations.is_empty()),
        ];
        let claims = claims.into_iter().map(|(text, holds)| Claim { text, holds }).collect();
        Self { claims, took_ms: took.as_millis(), from: images.v1.clone(), to: images.v2.clone(), report }
    }

    pub(super) fn is_right(&self) -> bool {
        self.claims.iter().all(|claim| claim.holds)
    }
}

/// Whether an operator had its permission while another one had.
fn overlapped(pod: &PodReport) -> bool {
    let spans: Vec<(f64, f64)> =
        pod.operations.iter().filter_map(|o| Some((o.operate_ms?, o.finished_ms?))).collect();
    spans.iter().enumerate().any(|(i, a)| spans[i + 1..].iter().any(|b| a.0 < b.1 && b.0 < a.1))
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for claim in &self.claims {
            writeln!(f, "{} {}", if claim.holds { "yes" } else { " NO" }, claim.text)?;
        }
        for violation in &self.report.violations {
            writeln!(
                f,
                "    {} at {:.1} ms: {}: {}",
                violation.pod, violation.at_ms, violation.rule, violation.seen
            )?;
        }
        let versions: usize = self.report.pods.iter().map(|pod| pod.versions).sum();
        let seconds = Duration::from_millis(u64::try_from(self.took_ms).unwrap_or(u64::MAX)).as_secs_f64();
        let verdict = if self.is_right() { "All is right" } else { "SOMETHING IS WRONG" };
        write!(
            f,
            "{verdict}: {} pods in {seconds:.1} s, {versions} versions checked.",
            self.report.pods.len()
        )
    }
}
