//! Secrets and ConfigMaps that do not exist, and their keys.

use crate::cause::{Case, Cause};
use crate::command::Commands;
use crate::snapshot::Snapshot;
use crate::words::{between, shortened};

/// Returns the cause of a container whose configuration is incomplete.
pub(super) fn cause(snapshot: &Snapshot, text: &str, who: &str) -> Cause {
    of_text(snapshot, text, who).unwrap_or_else(|| {
        let what = format!("{who} cannot be configured: {}", shortened(text, 300));
        let cause = Cause::new(Case::ContainerStart, format!("pod {}", snapshot.pod_name()), what);
        cause.next(Commands(&snapshot.pod).describe())
    })
}

/// Returns the cause if the text of the kubelet names an object that is missing.
pub(super) fn of_text(snapshot: &Snapshot, text: &str, who: &str) -> Option<Cause> {
    let commands = Commands(&snapshot.pod);
    let namespace = commands.namespace();
    // `couldn't find key KEY in ConfigMap NAMESPACE/NAME`
    if let Some(key) = between(text, "couldn't find key ", " in ") {
        let object = text.split(" in ").nth(1)?.trim();
        let what = format!("{who} needs the key {key}, which {object} does not have");
        let (kind, name) = object.split_once(' ')?;
        let name = name.rsplit('/').next()?;
        let next = commands.kubectl(&format!("edit {} {name}", kind.to_lowercase()));
        return Some(Cause::new(Case::MissingKey, object, what).next(next));
    }
    // `references non-existent secret key: KEY`
    if let Some((before, key)) = text.split_once("references non-existent ") {
        let (kind, key) = key.split_once(": ")?;
        let volume = between(before, "volume \"", "\"").unwrap_or_default();
        let what = format!("volume {volume} needs the key {key}, which its {} does not have", kind_of(kind));
        let cause = Cause::new(Case::MissingKey, format!("pod {}", snapshot.pod_name()), what);
        return Some(cause.next(commands.edit()));
    }
    for (start, kind, case) in
        [("secret \"", "Secret", Case::MissingSecret), ("configmap \"", "ConfigMap", Case::MissingConfigMap)]
    {
        let Some(name) = between(text, start, "\" not found") else { continue };
        let name = name.rsplit('/').next().unwrap_or(name);
        let what = format!("{who} needs {kind} {name}, which does not exist");
        let command = if kind == "Secret" { "create secret generic" } else { "create configmap" };
        let next = commands.kubectl(&format!("{command} {name} --from-literal=KEY=VALUE"));
        return Some(Cause::new(case, format!("{kind} {namespace}/{name}"), what).next(next));
    }
    None
}

fn kind_of(text: &str) -> &str {
    if text.starts_with("secret") { "Secret" } else { "ConfigMap" }
}
