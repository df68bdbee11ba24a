//! Traffic sources of a pod that is Ready.

use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::cause::{Case, Cause};
use crate::snapshot::Snapshot;

/// The label of the Service of an EndpointSlice.
const SERVICE: &str = "kubernetes.io/service-name";

/// Returns a line for each Service with an EndpointSlice that contains the pod: ready, serving and terminating.
#[must_use]
pub fn lines(snapshot: &Snapshot) -> Vec<String> {
    let shown = |(service, state): (String, EndpointState)| {
        let EndpointState { ready, serving, terminating } = state;
        format!("Service {service}: ready {ready}, serving {serving}, terminating {terminating}")
    };
    endpoints(snapshot).into_iter().map(shown).collect()
}

/// Adds the Services whose EndpointSlices contradict the pod, which is Ready.
pub(crate) fn add(causes: &mut Vec<Cause>, snapshot: &Snapshot) {
    for (service, state) in endpoints(snapshot) {
        if state.ready || state.terminating {
            continue;
        }
        let namespace = snapshot.pod.metadata.namespace.as_deref().unwrap_or_default();
        let what = format!("is Ready, and the EndpointSlice of Service {service} says that it is not");
        let next = format!("kubectl -n {namespace} get endpointslices -l {SERVICE}={service} -o yaml");
        causes.push(Cause::new(Case::Traffic, format!("Service {namespace}/{service}"), what).next(next));
    }
}

#[derive(Clone, Copy, Debug)]
struct EndpointState {
    ready: bool,
    serving: bool,
    terminating: bool,
}

fn endpoints(snapshot: &Snapshot) -> Vec<(String, EndpointState)> {
    let uid = snapshot.pod.metadata.uid.as_deref();
    let of_slice = |slice: &EndpointSlice| {
        let service = slice.metadata.labels.as_ref()?.get(SERVICE)?.clone();
        let endpoint = slice.endpoints.iter().find(|endpoint| {
            endpoint.target_ref.as_ref().is_some_and(|target| target.uid.as_deref() == uid)
        })?;
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        let ready = conditions.ready.unwrap_or(true);
        let serving = conditions.serving.unwrap_or(ready);
        Some((
            service,
            EndpointState { ready, serving, terminating: conditions.terminating.unwrap_or(false) },
        ))
    };
    let mut found: Vec<_> = snapshot.slices.iter().filter_map(of_slice).collect();
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found.dedup_by(|(one, _), (other, _)| one == other);
    found
}
