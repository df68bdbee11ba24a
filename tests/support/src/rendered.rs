//! The output of the Helm chart with default values and a registry that does not exist, as files for kubectl and kustomize: `deploy/podward`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use podward_images::workspace_dir;
use serde_json::Value;

use crate::podward::NAMESPACE;

const HEAD: &str = "# Written by `cargo xtask deploy` from charts/podward. Changes belong there.\n";
/// The lines of metadata that are only true for an installation by Helm.
const OF_HELM: [&str; 2] = ["helm.sh/chart: ", "app.kubernetes.io/managed-by: "];
const WEBHOOKS: &str = "webhooks.yaml";
/// The registry in the files. Images are not published, so users set theirs. Until they do, nothing is pulled: names
/// below `.invalid` never exist (RFC 6761).
const REGISTRY: &str = "registry.invalid";

/// Returns the folder of the files.
#[must_use]
pub fn folder() -> PathBuf {
    workspace_dir().join("deploy/podward")
}

/// The files that the chart has copies of, and the copies. Helm reads only files in the folder of the chart, and not every
/// tool that reads a chart from a repository follows links.
pub const COPIES: [(&str, &str); 2] = [
    ("deploy/alerts/podward.yaml", "charts/podward/files/alerts.yaml"),
    ("deploy/dashboards/podward.json", "charts/podward/files/dashboard.json"),
];

/// Writes the copies.
///
/// # Errors
/// Fails if a file cannot be read or written.
pub fn copy_into_chart() -> Result<()> {
    for (from, to) in COPIES {
        let (from, to) = (workspace_dir().join(from), workspace_dir().join(to));
        std::fs::copy(&from, &to).with_context(|| format!("copy {} to {}", from.display(), to.display()))?;
    }
    Ok(())
}

/// Renders the chart with the program `helm` and returns the files: their names and their contents.
///
/// # Errors
/// Fails if Helm cannot render the chart, or the output contains something that only Helm supports.
pub fn render(helm: &Path) -> Result<BTreeMap<String, String>> {
    let mut command = Command::new(helm);
    command.current_dir(workspace_dir()).args(["template", "podward", "charts/podward", "--no-hooks"]);
    // The definitions are in deploy/crds.
    command.args(["--namespace", NAMESPACE, "--set", "crds.install=false"]);
    command.arg("--set").arg(format!("global.image.registry={REGISTRY}"));
    let output = command.output().with_context(|| format!("run {}", helm.display()))?;
    ensure!(output.status.success(), "helm template: {}", String::from_utf8_lossy(&output.stderr));
    files(&String::from_utf8(output.stdout).context("helm's output is no text")?)
}

/// Returns the output of `helm template`, as files.
fn files(rendered: &str) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for document in format!("\n{rendered}").split("\n---\n").filter(|text| !text.trim().is_empty()) {
        let Some((source, text)) = document.trim_start().split_once('\n') else { continue };
        let source = source.strip_prefix("# Source: ").context("helm doesn't tell a document's source")?;
        let text = without_helm(text);
        let object: Value = serde_saphyr::from_str(&text).with_context(|| format!("understand {source}"))?;
        // The document contains only comments.
        if object.is_null() {
            continue;
        }
        check(&object).with_context(|| format!("{source} can't be applied without Helm"))?;
        let file = match object["kind"].as_str() {
            Some("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => WEBHOOKS.to_owned(),
            _ => format!("{}.yaml", chart_of(source)),
        };
        files.entry(file).or_insert_with(|| HEAD.to_owned()).push_str(&format!("---\n{text}"));
    }
    let kustomization = kustomization(files.keys().map(String::as_str));
    files.insert("namespace.yaml".to_owned(), namespace());
    files.insert("kustomization.yaml".to_owned(), kustomization);
    Ok(files)
}

/// Returns the chart, or subchart, that the template `source` belongs to.
fn chart_of(source: &str) -> &str {
    let chart = source.split("/templates/").next().unwrap_or_default();
    chart.rsplit('/').next().unwrap_or_default()
}

fn without_helm(text: &str) -> String {
    let of_helm = |line: &str| OF_HELM.iter().any(|start| line.trim_start().starts_with(start));
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !of_helm(line));
    lines.flat_map(|line| [line.trim_end(), "\n"]).collect()
}

/// Rejects everything that only Helm supports, because it has no effect in these files.
fn check(object: &Value) -> Result<()> {
    for part in ["labels", "annotations"] {
        let keys = object["metadata"][part].as_object().into_iter().flat_map(|map| map.keys());
        if let Some(key) = keys.into_iter().find(|key| key.contains("helm.sh/")) {
            bail!("{} {} has {part} {key}", object["kind"], object["metadata"]["name"]);
        }
    }
    Ok(())
}

fn namespace() -> String {
    format!(
        "{HEAD}# The webhooks leave this namespace out, so that Podward can always be repaired.
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    app.kubernetes.io/part-of: podward
    pod-security.kubernetes.io/enforce: restricted
"
    )
}

/// Objects that others need come first. The webhook configurations come last, because they call the services.
fn kustomization<'a>(files: impl Iterator<Item = &'a str>) -> String {
    let services = files.filter(|file| *file != WEBHOOKS).map(|file| format!("  - {file}\n"));
    let services: String = services.collect();
    format!(
        "{HEAD}apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - namespace.yaml
  - ../crds
{services}  - {WEBHOOKS}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENDERED: &str = "---
# Source: podward/charts/mutating-webhook/templates/rbac.yaml
# Only a comment.

---
# Source: podward/charts/mutating-webhook/templates/rbac.yaml
kind: ServiceAccount
metadata:
  name: a
  labels:
    app.kubernetes.io/managed-by: Helm
    helm.sh/chart: mutating-webhook-0.1.0
    kept: \"true\"

---
# Source: podward/templates/more.yaml
kind: ConfigMap
metadata:
  name: b
";

    #[test]
    fn documents_go_to_the_file_of_their_chart_without_what_is_helms() {
        let files = files(RENDERED).unwrap();
        let account = "kind: ServiceAccount\nmetadata:\n  name: a\n  labels:\n    kept: \"true\"\n";
        assert_eq!(files["mutating-webhook.yaml"], format!("{HEAD}---\n{account}"));
        assert!(files["podward.yaml"].ends_with("---\nkind: ConfigMap\nmetadata:\n  name: b\n"));
        assert!(files["kustomization.yaml"].contains("  - mutating-webhook.yaml\n  - podward.yaml\n"));
    }

    #[test]
    fn what_only_helm_understands_is_refused() {
        let hook = RENDERED.replace("name: b\n", "name: b\n  annotations:\n    helm.sh/hook: pre-delete\n");
        let error = format!("{:#}", files(&hook).unwrap_err());
        assert!(error.contains("helm.sh/hook"), "{error}");
    }
}
