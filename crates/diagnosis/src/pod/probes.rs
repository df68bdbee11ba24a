//! Probes that fail.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Container, Probe};

use crate::cause::{Case, Cause};
use crate::command::Commands;
use crate::events::{first_seen, last_seen, message, shown};
use crate::snapshot::Snapshot;
use crate::words::{shortened, span};

use crate::pod_view::containers;

/// The probes in the order in which they begin, and the start of the events about them.
const PROBES: [(&str, &str, Case); 3] = [
    ("startup", "Startup probe ", Case::StartupProbe),
    ("readiness", "Readiness probe ", Case::ReadinessProbe),
    ("liveness", "Liveness probe ", Case::LivenessProbe),
];

pub(super) fn add(causes: &mut Vec<Cause>, snapshot: &Snapshot) {
    for container in containers(&snapshot.pod) {
        let is_running = container.state().is_some_and(|state| state.running.is_some());
        if !is_running || (container.status.ready && container.status.started != Some(false)) {
            continue;
        }
        let words = format!("{} ", container.words());
        let named: Vec<Case> =
            causes.iter().filter(|cause| cause.what.contains(&words)).map(|cause| cause.case).collect();
        let Some(spec) = spec_of(snapshot, container.name()) else { continue };
        let started = container.status.started == Some(true);
        for (name, prefix, case) in PROBES {
            let probe = match name {
                "startup" if !started => &spec.startup_probe,
                "readiness" if started => &spec.readiness_probe,
                "liveness" if started => &spec.liveness_probe,
                _ => continue,
            };
            let Some(probe) = probe else { continue };
            if name == "liveness" && causes.iter().any(|cause| cause.case == Case::ReadinessProbe) {
                continue;
            }
            let event = snapshot.events.of_container("Unhealthy", prefix, container.name());
            if event.is_none() && name == "liveness" {
                continue;
            }
            let running_since = container.running_since();
            // The container ended before, and that cause does not explain what its probe has said since the start.
            let seen = event.and_then(last_seen).zip(running_since).is_some_and(|(seen, start)| seen > start);
            if !named.is_empty() && (!seen || named.contains(&case)) {
                continue;
            }
            let commands = Commands(&snapshot.pod);
            let error = event.map(|event| {
                let text = message(event).strip_prefix(prefix).unwrap_or(message(event));
                shortened(text.strip_prefix("failed: ").unwrap_or(text), 200)
            });
            let since = event.and_then(first_seen).or(running_since);
            let what = match &error {
                Some(error) => format!("the {name} probe of {} fails: {error}", container.words()),
                None => format!("the {name} probe of {} has not succeeded yet", container.words()),
            };
            let cause = Cause::new(case, format!("pod {}", snapshot.pod_name()), what).since(since);
            let evidence = [
                settings(name, probe, snapshot, event.and_then(last_seen)),
                event.map(shown).unwrap_or_default(),
            ];
            causes.push(cause.next(commands.logs(container.name(), false)).evidence(evidence));
        }
    }
}

fn spec_of<'s>(snapshot: &'s Snapshot, name: &str) -> Option<&'s Container> {
    let spec = snapshot.pod.spec.as_ref()?;
    let init = spec.init_containers.as_deref().unwrap_or_default();
    spec.containers.iter().chain(init).find(|container| container.name == name)
}

/// Returns what the probe does, how often, its thresholds, and the next attempt.
fn settings(name: &str, probe: &Probe, snapshot: &Snapshot, last: Option<jiff::Timestamp>) -> String {
    let period = probe.period_seconds.unwrap_or(10).max(1);
    let failures = probe.failure_threshold.unwrap_or(3);
    let action = if let Some(get) = &probe.http_get {
        let port = match &get.port {
            k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(port) => port.to_string(),
            k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::String(port) => port.clone(),
        };
        format!("GET {} on port {port}", get.path.as_deref().unwrap_or("/"))
    } else if probe.tcp_socket.is_some() {
        "a TCP connection".to_owned()
    } else if let Some(grpc) = &probe.grpc {
        format!("gRPC health on port {}", grpc.port)
    } else {
        let command = probe.exec.as_ref().and_then(|exec| exec.command.clone()).unwrap_or_default();
        format!("the command {}", shortened(&command.join(" "), 80))
    };
    let next = last.map(|last| {
        let next = last + SignedDuration::from_secs(i64::from(period));
        let left = next.duration_since(snapshot.now).as_secs().rem_euclid(i64::from(period));
        format!("; next attempt in {}", span(left))
    });
    let effect = match name {
        "readiness" => "without traffic",
        _ => "restarted",
    };
    format!(
        "{name} probe: {action}, every {}, timeout {}, {effect} after {failures} failures{}",
        span(i64::from(period)),
        span(i64::from(probe.timeout_seconds.unwrap_or(1))),
        next.unwrap_or_default()
    )
}
