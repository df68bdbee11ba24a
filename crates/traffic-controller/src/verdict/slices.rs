//! The state of a pod in the EndpointSlices.

use podward_core::hooks::EvidenceLevel::{Assumed, Proven};

use super::text::{count, join_names};
use super::traffic_verdict::VerdictPart;
use crate::index::{PodEndpoints, ServiceKind};

/// Checks that no slice shows the pod as ready or serving. Names who sends it traffic all the same.
pub(super) fn not_ready_in_slices(endpoints: &PodEndpoints) -> VerdictPart {
    let (mut assumed, mut words) = (Vec::new(), Vec::new());
    if let Some(sender) = &endpoints.ignores_gate {
        assumed.push(format!(
            "{sender} sends the pod traffic until it terminates, whatever its readiness gate says: keep a preStop hook \
             that lasts until the pod is removed there, or let a hook take the pod out of its Service"
        ));
    }
    for service in &endpoints.services {
        let name = &service.key;
        if service.kind == ServiceKind::ExternalName {
            continue;
        }
        if service.publishes_not_ready {
            assumed.push(format!(
                "Service {name} publishes addresses that are not ready: it sends the pod traffic regardless of the \
                 readiness gate"
            ));
            continue;
        }
        let slice = service.ready.as_ref().or(service.serving.as_ref());
        if slice.is_some() && !service.exists {
            words.push(format!(
                "Service {name}, whose slices list the pod, is deleted or has the type ExternalName"
            ));
            continue;
        }
        if let Some(slice) = slice {
            let state = if service.ready.is_some() { "ready" } else { "serving" };
            let hint = if service.has_selector {
                "; if this lasts, check that the pod has the readiness gate and that the kubelet of its node is running"
            } else {
                "; the Service has no selector: whoever writes its slices must remove the pod"
            };
            return VerdictPart::Wait(
                format!("EndpointSlice {slice} of Service {name} still shows the pod as {state}{hint}"),
                None,
            );
        }
        words.push(match service.slices {
            0 => format!("no slice of Service {name} lists the pod"),
            slices => format!("not ready in {} of Service {name}", count(slices, "slice")),
        });
    }
    if words.is_empty() && assumed.is_empty() {
        words.push("no Service selects the pod".to_owned());
    }
    if let Some(slice) = &endpoints.may_be_listed_in {
        assumed.push(format!(
            "EndpointSlice {slice} has the address of the pod's node and may send it traffic: the pod declares none of its \
             ports, but may listen on them"
        ));
    }
    if let Some(slice) = &endpoints.also_sent_by {
        assumed.push(format!(
            "EndpointSlice {slice} has the pod's address and sends it traffic, but is in another namespace or names another \
             object: not waited for"
        ));
    }
    // The reasons for the level first: of many texts, only the first ones are shown.
    let level = if assumed.is_empty() { Proven } else { Assumed };
    assumed.append(&mut words);
    VerdictPart::Done(level, join_names(&assumed))
}
