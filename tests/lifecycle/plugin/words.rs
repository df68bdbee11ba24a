//! Completion below kubectl, and output for programs.

use std::env;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use podward_e2e::{Fixture, Test};
use serde_json::Value;
use tokio::process::Command;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("plugin_completes_names_below_kubectl", completes),
        Test::simulated("plugin_writes_for_programs", for_programs),
    ]
}

async fn completes(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web-0", "web-1", "db-0"]).await?;
    let folder = tempfile::tempdir().context("make a folder")?;
    install(&fixture, folder.path()).await?;
    let namespace = fixture.namespace();
    let with_equals = format!("--namespace={namespace}");
    for (line, expected, directive) in [
        (vec!["why", "-n", namespace, "web"], vec!["web-0", "web-1"], 4),
        (vec!["begin", &with_equals, "d"], vec!["db-0"], 4),
        (vec!["why", "-n", namespace, "dep"], vec!["deploy/"], 6),
        (vec!["check", "-n", namespace, "deploy/"], Vec::new(), 4),
        (vec!["trace", "web-0", "-n", namespace], vec![namespace], 4),
        (vec!["why", "--context=none", "-n", namespace, "web"], Vec::new(), 4),
    ] {
        let said = complete(&fixture, folder.path(), &line).await?;
        let found: Vec<&str> = said
            .lines()
            .take_while(|line| !line.starts_with(':'))
            .map(str::trim_end)
            .filter(|line| !line.is_empty())
            .collect();
        ensure!(found == expected && said.contains(&format!("\n:{directive}\n")), "{line:?}: {said}");
    }
    Ok(())
}

/// Puts the plugin and its completion into a folder.
async fn install(fixture: &Fixture, folder: &Path) -> Result<()> {
    let plugin = fixture.plugin_command(&["completion", "kubectl"]).await?;
    let plugin = plugin.as_std().get_program();
    symlink(plugin, folder.join("kubectl-podward")).context("link the plugin")?;
    let script = Command::new(plugin).args(["completion", "kubectl"]).output().await;
    let file = folder.join("kubectl_complete-podward");
    std::fs::write(&file, script.context("print the script")?.stdout).context("write the script")?;
    std::fs::set_permissions(&file, Permissions::from_mode(0o755)).context("make the script executable")
}

/// Has kubectl complete the last word of `kubectl podward <line>`, with the folder in the PATH.
async fn complete(fixture: &Fixture, folder: &Path, line: &[&str]) -> Result<String> {
    let cluster = fixture.cluster().test_cluster().context("no test cluster")?;
    let path = env::var_os("PATH").unwrap_or_default();
    // The script runs the plugin by its name.
    let path = env::join_paths([folder.to_owned()].into_iter().chain(env::split_paths(&path)))?;
    let mut command = Command::new(cluster.tools().bin("kubectl"));
    command.args(["__complete", "podward"]).args(line);
    command.env("PATH", path).env("KUBECONFIG", cluster.kubeconfig()).kill_on_drop(true);
    let output = command.output().await.with_context(|| format!("complete {line:?}"))?;
    Ok(format!("\n{}", String::from_utf8_lossy(&output.stdout)))
}

async fn for_programs(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    for command in [vec!["why", "web"], vec!["get"], vec!["trace", "web"]] {
        let output = async |format: &str| {
            let args = [command.as_slice(), &[format]].concat();
            Ok::<_, anyhow::Error>(fixture.plugin(&args).await?.succeeded()?.said)
        };
        let text = output("--output=text").await?;
        ensure!(!text.contains('\u{1b}'), "there are colours without a terminal: {text:?}");
        let mut json: Value =
            serde_json::from_str(&output("--output=json").await?).context("read the JSON")?;
        let mut yaml: Value =
            serde_saphyr::from_str(&output("--output=yaml").await?).context("read the YAML")?;
        ensure!(json.is_object() || json.is_array(), "{json}");
        // The time of the look.
        for result in [&mut json, &mut yaml] {
            if let Some(fields) = result.as_object_mut() {
                fields.remove("at");
            }
        }
        ensure!(json == yaml, "{command:?}: {json} is not {yaml}");
    }
    Ok(())
}
