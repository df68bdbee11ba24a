//! PRE_CHECK: may the operation start?

use podward_core::UnixNanos;
use podward_core::hooks::EvidenceLevel::{Assumed, Proven};

use super::{Verdict, Waits, count};
use crate::clock::{after, between};
use crate::world::{Key, Others};

/// A Service that shows the pod ready, and its other endpoints.
#[derive(Clone, Debug)]
pub(crate) struct ServiceOthers {
    /// The Service.
    pub(crate) key: Key,
    /// The others.
    pub(crate) others: Others,
}

/// Whether a pod, whose Services are `services`, may be taken out: not while it is the last ready endpoint of one and another is on
/// its way, for which is waited for a while from `asked`.
///
/// Why not for ever: kube-proxy falls back on endpoints that are serving while they terminate, and a pod whose gate is False is not, so
/// the last endpoint is better kept; but one that never gets ready must not hold up an operation.
pub(crate) fn pre_check(
    services: &[ServiceOthers],
    waits: &Waits,
    asked: UnixNanos,
    now: UnixNanos,
) -> Verdict {
    let last: Vec<&ServiceOthers> = services.iter().filter(|service| service.others.ready == 0).collect();
    let end = after(asked, waits.surge);
    if let Some(service) = last.iter().find(|service| service.others.coming > 0) {
        let (name, coming) = (&service.key, count(service.others.coming, "other"));
        if now < end {
            let (gone, all) = (between(asked, now).as_secs_f64(), waits.surge.as_secs_f64());
            let reason = format!(
                "the pod is the last ready endpoint of Service {name}, and {coming} not ready yet: waited for {gone:.0} of {all} s"
            );
            return Verdict::pending(reason, Some(end));
        }
        let waited = waits.surge.as_secs_f64();
        return Verdict::done(
            Assumed,
            format!(
                "the pod is the last ready endpoint of Service {name}; {coming} didn't get ready within {waited} s"
            ),
        );
    }
    if let Some(service) = last.first() {
        let name = &service.key;
        return Verdict::done(
            Assumed,
            format!("the pod is the last ready endpoint of Service {name}, and no other is on its way"),
        );
    }
    let fewest = services.iter().min_by_key(|service| service.others.ready);
    Verdict::done(
        Proven,
        fewest.map_or_else(
            || "no Service sends it traffic".to_owned(),
            |service| {
                format!(
                    "Service {} keeps {}",
                    service.key,
                    count(service.others.ready, "other ready endpoint")
                )
            },
        ),
    )
}
