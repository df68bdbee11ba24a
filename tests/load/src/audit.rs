//! Counts Podward's writes in the API server's audit log.

use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Writes of Podward: the total, or per operation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Writes {
    /// Writes to pods, including deletes and evictions.
    pub pods: f64,
    /// Writes to pods/status.
    pub status: f64,
    /// Writes to podtransitionrules/status.
    pub rules: f64,
    /// The writes among these that failed with 409 or another error.
    pub refused: f64,
    /// Events.
    pub events: f64,
}

impl Writes {
    /// Returns the writes per operation.
    #[must_use]
    pub fn per_operation(&self, operations: usize) -> Writes {
        let each = |all: f64| all / operations as f64;
        Writes {
            pods: each(self.pods),
            status: each(self.status),
            rules: each(self.rules),
            refused: each(self.refused),
            events: each(self.events),
        }
    }
}

/// Writes of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentWrites {
    /// To pods and their subresources.
    pub(crate) pods: u64,
    /// To CloneSets and their subresources.
    pub(crate) sets: u64,
    /// To other objects, without events and leases.
    pub(crate) others: u64,
    /// Those among these that failed.
    pub(crate) refused: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditEntry {
    stage: String,
    verb: String,
    user_agent: Option<String>,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
}

#[derive(Deserialize)]
struct ObjectRef {
    resource: Option<String>,
    subresource: Option<String>,
}

#[derive(Deserialize)]
struct ResponseStatus {
    code: Option<u16>,
}

/// Returns the current end of the log.
pub(crate) fn mark(log: &Path) -> Result<u64> {
    Ok(std::fs::metadata(log).with_context(|| format!("look at the audit log {}", log.display()))?.len())
}

/// Returns the writes of Podward's services since `mark`.
pub(crate) fn since(log: &Path, mark: u64) -> Result<Writes> {
    let mut writes = Writes::default();
    each(log, mark, |entry| count(entry, &mut writes))?;
    Ok(writes)
}

/// Returns the writes of a service since `mark`. `agent` is the beginning of its user agent.
pub(crate) fn writes_of(log: &Path, mark: u64, agent: &str) -> Result<AgentWrites> {
    let mut writes = AgentWrites::default();
    each(log, mark, |entry| {
        if !entry.is_write_of(agent) {
            return;
        }
        match entry.object_ref.as_ref().and_then(|object| object.resource.as_deref()) {
            Some("pods") => writes.pods += 1,
            Some("clonesets") => writes.sets += 1,
            Some("events" | "leases") => return,
            _ => writes.others += 1,
        }
        writes.refused += u64::from(entry.failed());
    })?;
    Ok(writes)
}

/// Returns how often a program has renewed Leases since `mark`. `agent` is the beginning of its user agent.
pub(crate) fn renewals_of(log: &Path, mark: u64, agent: &str) -> Result<u64> {
    let mut renewals = 0;
    each(log, mark, |entry| {
        let resource = entry.object_ref.as_ref().and_then(|object| object.resource.as_deref());
        renewals += u64::from(entry.is_write_of(agent) && resource == Some("leases") && !entry.failed());
    })?;
    Ok(renewals)
}

fn each(log: &Path, mark: u64, mut visit: impl FnMut(&AuditEntry)) -> Result<()> {
    let mut file =
        std::fs::File::open(log).with_context(|| format!("open the audit log {}", log.display()))?;
    file.seek(SeekFrom::Start(mark))?;
    for line in BufReader::new(file).lines() {
        let line = line?;
        let Ok(entry) = serde_json::from_str::<AuditEntry>(&line) else { continue };
        visit(&entry);
    }
    Ok(())
}

impl AuditEntry {
    fn is_write_of(&self, agent: &str) -> bool {
        let is_its = self.user_agent.as_deref().is_some_and(|found| found.starts_with(agent));
        let is_write = matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete");
        is_its && is_write && self.stage == "ResponseComplete"
    }

    fn failed(&self) -> bool {
        self.response_status.as_ref().and_then(|status| status.code).is_none_or(|code| code >= 400)
    }
}

fn count(entry: &AuditEntry, writes: &mut Writes) {
    if !entry.is_write_of("podward-") {
        return;
    }
    let Some(object) = &entry.object_ref else { return };
    match (object.resource.as_deref(), object.subresource.as_deref()) {
        (Some("pods"), None | Some("eviction")) => writes.pods += 1.0,
        (Some("pods"), Some("status")) => writes.status += 1.0,
        (Some("podtransitionrules"), Some("status")) => writes.rules += 1.0,
        (Some("events"), _) => {
            writes.events += 1.0;
            return;
        }
        _ => return,
    }
    if entry.failed() {
        writes.refused += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_podward_wrote() {
        let mut writes = Writes::default();
        for (verb, agent, resource, subresource, code) in [
            ("patch", "podward-lifecycle-controller/0.1.0", "pods", "", 200),
            ("patch", "podward-lifecycle-controller/0.1.0", "pods", "status", 409),
            ("patch", "podward-lifecycle-controller/0.1.0", "podtransitionrules", "status", 200),
            ("patch", "podward-lifecycle-controller/0.1.0", "podtransitionrules", "status", 409),
            ("create", "kubectl/1.35.0", "podtransitionrules", "", 201),
            ("create", "podward-lifecycle-controller/0.1.0", "events", "", 201),
            ("patch", "podward-lifecycle-controller/0.1.0", "leases", "", 200),
            ("get", "podward-lifecycle-controller/0.1.0", "pods", "", 200),
            ("patch", "kubelet", "pods", "status", 200),
        ] {
            let subresource = if subresource.is_empty() {
                String::new()
            } else {
                format!(r#","subresource":"{subresource}""#)
            };
            let text = format!(
                r#"{{"stage":"ResponseComplete","verb":"{verb}","userAgent":"{agent}","objectRef":{{"resource":"{resource}"{subresource}}},"responseStatus":{{"code":{code}}}}}"#
            );
            count(&serde_json::from_str(&text).unwrap(), &mut writes);
        }
        let Writes { pods, status, rules, refused, events } = writes;
        assert_eq!((pods, status, rules, refused, events), (1.0, 1.0, 2.0, 2.0, 1.0));
    }
}
