//! Containers that do not start.

use crate::cause::{Case, Cause};
use crate::command::Commands;
use crate::events::{first_seen, message, shown};
use crate::snapshot::Snapshot;
use crate::words::{between, shortened};

use super::{config, images};
use crate::pod_view::{ContainerView, condition, containers, phase};

/// The reasons of a container that waits because its image cannot be had.
const IMAGE_REASONS: [&str; 8] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
    "ImageInspectError",
    "SignatureValidationFailed",
    "ErrImagePullBackOff",
];
/// Those of a container that the runtime cannot create or start.
const START_REASONS: [&str; 4] =
    ["CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"];

/// Parts of the texts about the network of a sandbox, of containerd, CRI-O and network plugins. That a registry cannot be
/// reached for the image of the sandbox is another cause.
const NETWORK_TEXTS: [&str; 4] = ["setup network", "pod network", "networkPlugin", "plugin type="];

pub(super) fn add(causes: &mut Vec<Cause>, snapshot: &Snapshot) {
    for container in containers(&snapshot.pod) {
        let Some((reason, text)) = container.waiting() else { continue };
        if IMAGE_REASONS.contains(&reason) {
            causes.push(images::cause(snapshot, &container, reason, text));
        } else if reason == "CreateContainerConfigError" {
            causes.push(config::cause(snapshot, text, &container.words()).since(since(snapshot)));
        } else if START_REASONS.contains(&reason) {
            causes.push(not_started(snapshot, &container, reason, text));
        }
    }
    if causes.is_empty() && phase(&snapshot.pod) == "Pending" {
        add_volumes_and_network(causes, snapshot);
    }
    add_init(causes, snapshot);
}

/// A pod that waits for its kubelet, and nothing says why.
pub(super) fn add_unknown(causes: &mut Vec<Cause>, snapshot: &Snapshot) {
    let commands = Commands(&snapshot.pod);
    let waiting = containers(&snapshot.pod).find_map(|it| it.waiting().map(|(reason, _)| (it, reason)));
    let node = snapshot.pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let what = match waiting {
        Some((container, reason)) => format!("{} is starting on node {node} ({reason})", container.words()),
        None if phase(&snapshot.pod) == "Pending" => {
            format!("the kubelet of node {node} has not started it yet")
        }
        None => return,
    };
    let cause = Cause::new(Case::Starting, format!("node {node}"), what).since(since(snapshot));
    causes.push(cause.next(commands.describe()));
}

/// The time at which the pod was scheduled.
fn since(snapshot: &Snapshot) -> Option<jiff::Timestamp> {
    let scheduled = condition(&snapshot.pod, "PodScheduled");
    scheduled.and_then(|it| it.last_transition_time.as_ref()).map(|time| time.0)
}

fn not_started(snapshot: &Snapshot, container: &ContainerView<'_>, reason: &str, text: &str) -> Cause {
    let what = format!("{} cannot be started: {}", container.words(), shortened(text, 300));
    let object = format!("pod {}", snapshot.pod_name());
    let cause = Cause::new(Case::ContainerStart, object, what).since(since(snapshot));
    cause.next(Commands(&snapshot.pod).edit()).evidence([format!("container state {reason}")])
}

/// How the attach-detach controller begins its message about a volume that another node has, until Kubernetes 1.36 and
/// from 1.37 on (`reportMultiAttachError` in pkg/controller/volume/attachdetach/reconciler/reconciler.go).
const ATTACHED_ELSEWHERE: [&str; 2] = ["Multi-Attach error for volume", "Waiting for detach for volume"];

fn add_volumes_and_network(causes: &mut Vec<Cause>, snapshot: &Snapshot) {
    let commands = Commands(&snapshot.pod);
    let name = format!("pod {}", snapshot.pod_name());
    if let Some(event) = snapshot.events.newest(&["FailedAttachVolume"]) {
        let text = message(event);
        let (case, what) = if ATTACHED_ELSEWHERE.iter().any(|begin| text.contains(begin)) {
            let volume = between(text, "volume \"", "\"").unwrap_or("of the pod");
            let by = text.rsplit("already used by pod(s) ").next().filter(|rest| *rest != text);
            let by =
                by.map_or_else(|| "another node".to_owned(), |pods| format!("pod {pods} on another node"));
            (Case::MultiAttach, format!("volume {volume} is still attached for {by}"))
        } else {
            (Case::Mount, format!("a volume cannot be attached: {}", shortened(text, 300)))
        };
        let next = "kubectl get volumeattachments; the old pod has to end first";
        causes.push(
            Cause::new(case, name.clone(), what).since(first_seen(event)).next(next).evidence([shown(event)]),
        );
    }
    if let Some(event) = snapshot.events.newest(&["FailedMount", "FailedMapVolume"]) {
        let text = message(event);
        let known = config::of_text(snapshot, text, "a volume");
        let cause = known.unwrap_or_else(|| {
            let volume = between(text, "volume \"", "\"").unwrap_or("of the pod");
            let what = format!("volume {volume} cannot be mounted: {}", shortened(text, 300));
            Cause::new(Case::Mount, name.clone(), what).next(commands.describe())
        });
        causes.push(cause.since(first_seen(event)).evidence([shown(event)]));
    }
    if let Some(event) = snapshot.events.newest(&["FailedCreatePodSandBox", "NetworkNotReady"]) {
        let text = message(event);
        if text.contains("OOM-killed") {
            let what = "the memory limit of the pod is too low for the runtime to start it";
            let next = format!("{}; raise resources.limits.memory", commands.edit());
            let cause = Cause::new(Case::OutOfMemory, name, what).since(first_seen(event));
            causes.push(cause.next(next).evidence([shown(event)]));
            return;
        }
        let cause = sandbox(snapshot, text, event.reason.as_deref() == Some("NetworkNotReady"));
        causes.push(cause.since(first_seen(event)).evidence([shown(event)]));
    }
}

/// The sandbox of a pod holds its namespaces. The runtime makes it before the containers, with the network of the pod.
fn sandbox(snapshot: &Snapshot, text: &str, no_network: bool) -> Cause {
    let spec = snapshot.pod.spec.as_ref();
    let node = spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let name = format!("node {node}");
    // The kubelet and the runtime repeat themselves: what is new comes last.
    let told = text
        .rsplit_once("failed to setup network for sandbox ")
        .map_or(text, |(_, rest)| rest.split_once(": ").map_or(rest, |(_, why)| why));
    if no_network || NETWORK_TEXTS.iter().any(|part| text.contains(part)) {
        let what = format!("the network of the pod cannot be made on node {node}: {}", shortened(told, 300));
        let next = format!("kubectl -n kube-system get pods -o wide --field-selector spec.nodeName={node}");
        return Cause::new(Case::Network, name, what).next(next);
    }
    let class = spec.and_then(|spec| spec.runtime_class_name.as_deref());
    let handler = between(text, "no runtime for \"", "\" is configured");
    if let (Some(class), Some(handler)) = (class, handler) {
        let what = format!("node {node} does not have the runtime {handler} of RuntimeClass {class}");
        return Cause::new(Case::Sandbox, name, what).next(format!("kubectl describe runtimeclass {class}"));
    }
    let what = format!("the sandbox of the pod cannot be made on node {node}: {}", shortened(text, 300));
    Cause::new(Case::Sandbox, name, what).next(Commands(&snapshot.pod).describe())
}

/// The init container or sidecar that the next containers wait for.
fn add_init(causes: &mut Vec<Cause>, snapshot: &Snapshot) {
    if condition(&snapshot.pod, "Initialized").is_none_or(|it| it.status == "True") {
        return;
    }
    let specs =
        snapshot.pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    for container in containers(&snapshot.pod).filter(|it| it.is_init) {
        let spec = specs.iter().find(|spec| spec.name == container.name());
        let is_sidecar = spec.is_some_and(|spec| spec.restart_policy.as_deref() == Some("Always"));
        let is_done =
            container.state().and_then(|state| state.terminated.as_ref()).is_some_and(|it| it.exit_code == 0);
        if is_done || (is_sidecar && container.status.started == Some(true)) {
            continue;
        }
        let Some(running) = container.state().and_then(|state| state.running.as_ref()) else { return };
        let since = running.started_at.as_ref().map(|time| time.0);
        let commands = Commands(&snapshot.pod);
        let (case, what) = if is_sidecar {
            (
                Case::Sidecar,
                format!("sidecar {} has not started: its startup probe has not succeeded", container.name()),
            )
        } else {
            (
                Case::InitContainer,
                format!("init container {} has not ended, and the next containers wait", container.name()),
            )
        };
        let cause = Cause::new(case, format!("pod {}", snapshot.pod_name()), what);
        causes.push(cause.since(since).next(commands.logs(container.name(), false)));
        return;
    }
}
