//! The objects that the chart renders with other values than those of this installation. A real API server validates
//! them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use podward_images::workspace_dir;
use serde_json::Value;

use super::site::{NAMESPACE, Site};

/// The kinds that only clusters with other projects have.
const OF_OTHERS: [&str; 2] = ["cert-manager.io/", "monitoring.coreos.com/"];

/// The namespaces that exist.
const PRESENT: [&str; 2] = ["default", NAMESPACE];

/// Applies each golden case as a dry run.
pub(crate) async fn what_the_chart_makes_is_accepted(site: &Site) -> Result<()> {
    let cases = workspace_dir().join("tests/charts/cases");
    let folder = tempfile::tempdir().context("make a folder")?;
    let file = folder.path().join("known.yaml");
    let mut seen = 0;
    for case in std::fs::read_dir(&cases).with_context(|| format!("list {}", cases.display()))? {
        let path = case?.path().join("rendered.yaml");
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        for (namespace, documents) in known(&text)? {
            let is_made = !PRESENT.contains(&namespace.as_str());
            if is_made {
                site.kubectl(&["create", "namespace", &namespace]).await?;
            }
            std::fs::write(&file, documents.join("\n---\n")).context("write a file")?;
            let name = file.to_str().context("a folder whose name is no text")?;
            let place = ["apply", "--namespace", &namespace, "--filename", name];
            let how = ["--dry-run=server", "--server-side", "--force-conflicts"];
            let answer = site.kubectl(&[&place[..], &how].concat()).await;
            let answer = answer.with_context(|| format!("what {} has in {namespace}", path.display()))?;
            ensure!(answer.lines().count() == documents.len(), "of {} objects: {answer}", documents.len());
            if is_made {
                site.kubectl(&["delete", "namespace", &namespace, "--wait=false"]).await?;
            }
            seen += documents.len();
        }
    }
    ensure!(seen > 100, "only {seen} objects were looked at");
    roles_of_people(site).await
}

/// Kubernetes adds the rules of the chart to its own roles.
async fn roles_of_people(site: &Site) -> Result<()> {
    let rules = async |role: &str| -> Result<Vec<Value>> {
        let role = site.kubectl(&["get", "clusterrole", role, "--output=json"]).await?;
        let role: Value = serde_json::from_str(&role).context("read a role")?;
        role["rules"].as_array().cloned().context("a role without rules")
    };
    let allows = |rules: &[Value], resource: &str, verb: &str| {
        let has =
            |list: &Value, word: &str| list.as_array().is_some_and(|list| list.iter().any(|it| it == word));
        rules.iter().any(|rule| has(&rule["resources"], resource) && has(&rule["verbs"], verb))
    };
    let (view, edit) = (rules("view").await?, rules("edit").await?);
    for resource in ["podtransitionrules", "lifecyclehooks", "discoverybindings"] {
        ensure!(allows(&view, resource, "list"), "view may not list {resource}");
        ensure!(!allows(&view, resource, "delete"), "view may delete {resource}");
    }
    ensure!(allows(&edit, "podtransitionrules", "delete"), "edit may not delete podtransitionrules");
    ensure!(!allows(&edit, "lifecyclehooks", "create"), "edit may create lifecyclehooks");
    Ok(())
}

/// Returns the documents of kinds that this cluster has, by namespace. Objects without a namespace are with those of
/// Podward's.
fn known(text: &str) -> Result<BTreeMap<String, Vec<&str>>> {
    let mut documents: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for document in text.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(document).context("read a document")?;
        let Some(version) = object["apiVersion"].as_str() else { continue };
        // A pod needs its service account, which a dry run does not create. `helm test` creates the pod.
        let is_pod = object["kind"] == "Pod";
        if !is_pod && !OF_OTHERS.iter().any(|group| version.starts_with(group)) {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or(NAMESPACE);
            documents.entry(namespace.to_owned()).or_default().push(document);
        }
    }
    Ok(documents)
}
