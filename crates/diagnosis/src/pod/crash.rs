//! Containers that end again and again.

use k8s_openapi::api::core::v1::ContainerStateTerminated;

use crate::cause::{Case, Cause};
use crate::command::Commands;
use crate::events::{message, shown};
use crate::snapshot::Snapshot;
use crate::words::shortened;

use crate::pod_view::{ContainerView, containers};

/// A container that has run for this time, in seconds, runs on: the kubelet starts it without a delay when it ends.
const BACK_OFF_RESET: i64 = 600;

/// Adds the last end of each container that runs on since, if `runs_on`, and of the others if not. A container that runs on
/// is not Ready for another reason, such as its probe, which comes first.
pub(super) fn add(causes: &mut Vec<Cause>, snapshot: &Snapshot, runs_on: bool) {
    for container in containers(&snapshot.pod) {
        let runs_for = container.running_since().map(|start| snapshot.now.duration_since(start).as_secs());
        if runs_for.is_some_and(|seconds| seconds > BACK_OFF_RESET) != runs_on {
            continue;
        }
        let backs_off = container.waiting().is_some_and(|(reason, _)| reason == "CrashLoopBackOff");
        let now =
            container.state().and_then(|state| state.terminated.as_ref()).filter(|it| it.exit_code != 0);
        let before = container.status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        let Some(ended) = now.or(before.filter(|_| backs_off || !container.status.ready)) else { continue };
        causes.push(cause(snapshot, &container, ended));
    }
}

fn cause(snapshot: &Snapshot, container: &ContainerView<'_>, ended: &ContainerStateTerminated) -> Cause {
    let commands = Commands(&snapshot.pod);
    let (words, name) = (container.words(), container.name());
    let object = format!("pod {}", snapshot.pod_name());
    let restarts = match container.status.restart_count {
        0 => String::new(),
        1 => ", 1 restart".to_owned(),
        number => format!(", {number} restarts"),
    };
    let since = ended.finished_at.as_ref().map(|time| time.0);
    let mut evidence = vec![format!(
        "{words}: exit code {} ({}){restarts}",
        ended.exit_code,
        ended.reason.as_deref().unwrap_or("no reason")
    )];
    evidence.extend(ended.message.as_deref().map(|text| shortened(text, 400)));
    if let Some(log) = snapshot.previous_logs.get(name) {
        evidence.extend(log.lines().map(|line| format!("last log: {}", shortened(line, 300))));
    }
    let post_start = snapshot.events.of_container("FailedPostStartHook", "", name);
    let killed = snapshot
        .events
        .of_container("Killing", "", name)
        .filter(|event| message(event).contains("liveness probe"));
    let killed_by_startup = snapshot
        .events
        .of_container("Killing", "", name)
        .filter(|event| message(event).contains("startup probe"));
    // The runtime says so if the limit is too small for the first process.
    let at_start = ended.message.as_deref().is_some_and(|text| text.contains("OOM-killed"));
    let (case, what, next) = if at_start || ended.reason.as_deref() == Some("OOMKilled") {
        let limit = limit_of(snapshot, name);
        let what = format!("{words} used more memory than its limit{limit} and was killed{restarts}");
        (Case::OutOfMemory, what, format!("{}; raise resources.limits.memory", commands.edit()))
    } else if let Some(event) = post_start {
        evidence.push(shown(event));
        (Case::PostStart, format!("the postStart hook of {words} fails{restarts}"), commands.edit())
    } else if let Some(event) = killed {
        evidence.push(shown(event));
        let what = format!("the liveness probe of {words} fails, and the kubelet restarts it{restarts}");
        (Case::LivenessProbe, what, commands.logs(name, true))
    } else if let Some(event) = killed_by_startup {
        evidence.push(shown(event));
        let what = format!("the startup probe of {words} fails, and the kubelet restarts it{restarts}");
        (Case::StartupProbe, what, commands.logs(name, true))
    } else if matches!(ended.reason.as_deref(), Some("StartError" | "ContainerCannotRun")) {
        let text = shortened(ended.message.as_deref().unwrap_or_default(), 200);
        (Case::ContainerStart, format!("{words} cannot be started: {text}"), commands.edit())
    } else {
        let meaning = meaning(ended.exit_code).map(|text| format!(": {text}")).unwrap_or_default();
        let case = if container.is_init { Case::InitContainer } else { Case::Crash };
        let what = format!("{words} ends with exit code {}{meaning}{restarts}", ended.exit_code);
        (case, what, commands.logs(name, container.state().is_none_or(|state| state.terminated.is_none())))
    };
    Cause::new(case, object, what).since(since).next(next).evidence(evidence)
}

/// Returns what an exit code usually means. From 129 on, it is 128 and the number of a signal.
fn meaning(code: i32) -> Option<&'static str> {
    Some(match code {
        0 => "it ends although it should run on",
        126 => "its command cannot be executed",
        127 => "its command does not exist in the image",
        132 => "SIGILL, the program is not for this CPU",
        134 => "SIGABRT, the program gave up",
        137 => "SIGKILL, it was killed",
        139 => "SIGSEGV, the program accessed invalid memory",
        143 => "SIGTERM, it was asked to end",
        _ => return None,
    })
}

fn limit_of(snapshot: &Snapshot, name: &str) -> String {
    let spec = snapshot.pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let mut all = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default().iter().chain(init);
    let limits = all.find(|it| it.name == name).and_then(|it| it.resources.as_ref()?.limits.as_ref());
    let limit = limits.and_then(|limits| limits.get("memory"));
    limit.map(|limit| format!(" of {}", limit.0)).unwrap_or_default()
}
