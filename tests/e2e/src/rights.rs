//! The rights of Podward's accounts: those that roles grant, and those that the API server's audit log shows in use.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::{BufRead, BufReader},
    path::Path,
};

use anyhow::{Context, Result};
use k8s_openapi::api::rbac::v1::PolicyRule;
use podward_images::workspace_dir;
use podward_support::Installation;
use serde_json::Value;

/// The output of the chart with default values. `tests/e2e/charts.rs` checks that it is up to date.
const RENDERED: &str = "tests/charts/cases/default/rendered.yaml";

/// A right of an account, or its use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessRight {
    /// The name of the service account, in Podward's namespace.
    pub account: String,
    /// The verb.
    pub verb: String,
    /// The resource, after its group and a slash, and with a subresource after another slash.
    pub resource: String,
}

impl AccessRight {
    /// Returns a right. `group` is empty for the core group.
    #[must_use]
    pub fn new(account: &str, verb: &str, group: &str, resource: &str) -> Self {
        let resource = if group.is_empty() { resource.to_owned() } else { format!("{group}/{resource}") };
        Self { account: account.to_owned(), verb: verb.to_owned(), resource }
    }

    /// Returns the rights that a rule gives to `account`.
    pub fn of_rule<'r>(account: &'r str, rule: &'r PolicyRule) -> impl Iterator<Item = Self> + use<'r> {
        rule.api_groups.iter().flatten().flat_map(move |group| {
            rule.resources.iter().flatten().flat_map(move |resource| {
                rule.verbs.iter().map(move |verb| Self::new(account, verb, group, resource))
            })
        })
    }
}

impl fmt::Display for AccessRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.account, self.verb, self.resource)
    }
}

/// What the accounts of Podward did, according to the audit log.
#[derive(Debug, Default)]
pub struct RecordedAccess {
    /// The rights that were used.
    pub allowed: BTreeSet<AccessRight>,
    /// The rights that were missing.
    pub forbidden: BTreeSet<AccessRight>,
}

impl RecordedAccess {
    /// Reads the audit log.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub fn read(log: &Path) -> Result<Self> {
        let mut recorded = Self::default();
        let file = std::fs::File::open(log).with_context(|| format!("open {}", log.display()))?;
        for line in BufReader::new(file).lines() {
            // The last line may be incomplete.
            if let Ok(entry) = serde_json::from_str(&line.context("read the audit log")?) {
                recorded.saw(&entry);
            }
        }
        Ok(recorded)
    }

    /// An event of the audit log, `audit.k8s.io/v1`.
    fn saw(&mut self, entry: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let user = text(&entry["user"]["username"]);
        let accounts = format!("system:serviceaccount:{}:", Installation::NAMESPACE);
        let Some(account) = user.strip_prefix(&accounts) else { return };
        let object = &entry["objectRef"];
        let mut resource = text(&object["resource"]);
        if let Some(part) = object["subresource"].as_str() {
            resource = format!("{resource}/{part}");
        }
        let right = AccessRight::new(account, &text(&entry["verb"]), &text(&object["apiGroup"]), &resource);
        match entry["annotations"]["authorization.k8s.io/decision"].as_str() {
            Some("forbid") => self.forbidden.insert(right),
            _ => self.allowed.insert(right),
        };
    }
}

/// Returns the rights that the chart grants with default values, each with its role and the file that renders it.
/// Roles of jobs are included: in a cluster they exist only while the job runs.
///
/// # Errors
/// Fails if the rendered chart cannot be read.
pub fn rendered_rights() -> Result<BTreeMap<AccessRight, String>> {
    let file = workspace_dir().join(RENDERED);
    let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let (mut roles, mut bindings) = (BTreeMap::new(), Vec::new());
    for document in format!("\n{text}").split("\n---\n").filter(|document| !document.trim().is_empty()) {
        let source = document.lines().find_map(|line| line.strip_prefix("# Source: ")).unwrap_or_default();
        let object: Value =
            serde_saphyr::from_str(document).with_context(|| format!("understand {source}"))?;
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        match kind.as_str() {
            "Role" | "ClusterRole" => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let rules: Vec<PolicyRule> = serde_json::from_value(object["rules"].clone())
                    .with_context(|| format!("read {kind} {name}"))?;
                roles.insert((kind, namespace, name), (rules, source.to_owned()));
            }
            "RoleBinding" | "ClusterRoleBinding" => bindings.push((namespace, object)),
            _ => {}
        }
    }
    let mut rights = BTreeMap::new();
    for (namespace, binding) in bindings {
        let part = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (part(&binding["roleRef"]["kind"]), part(&binding["roleRef"]["name"]));
        // A RoleBinding may also bind a ClusterRole.
        let place = if kind == "ClusterRole" { String::new() } else { namespace };
        let role = roles.get(&(kind.clone(), place, name.clone()));
        let (rules, source) = role.with_context(|| format!("find the rules of {kind} {name}"))?;
        for subject in binding["subjects"].as_array().into_iter().flatten() {
            let account = part(&subject["name"]);
            for right in rules.iter().flat_map(|rule| AccessRight::of_rule(&account, rule)) {
                rights.insert(right, format!("{kind} {name} of charts/{source}"));
            }
        }
    }
    Ok(rights)
}

/// Returns a line for each right, with the role that grants it.
#[must_use]
pub fn lines(rights: &BTreeSet<AccessRight>, granted_by: &BTreeMap<AccessRight, String>) -> String {
    let line = |right: &AccessRight| match granted_by.get(right) {
        Some(role) => format!("\n  {right} ({role})"),
        None => format!("\n  {right}"),
    };
    rights.iter().map(line).collect()
}
