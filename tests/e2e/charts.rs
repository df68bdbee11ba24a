//! The output and the errors of the Helm chart: `tests/charts`. It needs no cluster.
#![forbid(unsafe_code)]
// The helpers of tests are tests, too.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use podward_images::workspace_dir;
use podward_support::rendered;
use podward_testbed::{Part, Tools, preflight};

fn program() -> PathBuf {
    let missing = preflight(&[Part::Helm], false);
    assert!(missing.is_empty(), "{missing:?}");
    Tools::cached().unwrap().bin("helm")
}

fn helm(arguments: &[&str], values: &Path) -> Output {
    let mut command = Command::new(program());
    command.current_dir(workspace_dir()).args(arguments).arg("--values").arg(values);
    command.output().unwrap()
}

fn template(namespace: &str, values: &Path) -> Output {
    helm(&["template", "podward", "charts/podward", "--namespace", namespace], values)
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = workspace_dir().join("tests/charts").join(folder);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the text of the comment `# <key>: ...`.
fn line<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(&format!("# {key}: ")))
}

fn namespace(text: &str) -> String {
    line(text, "namespace").unwrap_or("podward-system").to_owned()
}

#[test]
fn every_case_renders_as_it_is_written_down() {
    for case in files("cases") {
        let values = case.join("values.yaml");
        let namespace = namespace(&fs::read_to_string(&values).unwrap());
        let rendered = template(&namespace, &values);
        assert!(rendered.status.success(), "{}: {}", case.display(), text(&rendered.stderr));
        let (found, expected) =
            (text(&rendered.stdout), fs::read_to_string(case.join("rendered.yaml")).unwrap());
        let differs =
            found.lines().zip(expected.lines()).enumerate().find(|(_, (found, expected))| found != expected);
        assert_eq!(differs, None, "{}", case.display());
        assert_eq!(found.lines().count(), expected.lines().count(), "{}", case.display());
        let lint = helm(&["lint", "--strict", "charts/podward", "--namespace", &namespace], &values);
        assert!(lint.status.success(), "{}: {}", case.display(), text(&lint.stdout));
    }
}

#[test]
fn wrong_values_are_refused_with_a_reason() {
    for case in files("refused") {
        let written = fs::read_to_string(&case).unwrap();
        let expected = line(&written, "refused").unwrap();
        let found = template(&namespace(&written), &case);
        assert!(!found.status.success(), "{} is taken", case.display());
        // Helm wraps long texts.
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = flat(&text(&found.stderr));
        assert!(said.contains(&flat(expected)), "{}: {said}", case.display());
    }
}

#[test]
fn the_files_for_kubectl_are_what_the_chart_renders() {
    let folder = rendered::folder();
    let rendered = rendered::render(&program()).unwrap();
    for (name, text) in &rendered {
        let written = fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(written == *text, "run `cargo xtask deploy`: deploy/podward/{name} differs");
    }
    let there: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let more = there.iter().find(|name| !rendered.contains_key(name.to_str().unwrap()));
    assert_eq!(more, None, "a file that the chart doesn't render: run `cargo xtask deploy`");
}

/// Whoever registers `podward` at a public registry must not get their images into a cluster.
#[test]
fn no_image_comes_from_a_registry_that_anybody_may_own() {
    let images = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.trim().strip_prefix("image: ")).map(str::to_owned).collect()
    };
    let files = rendered::render(&program()).unwrap();
    let of_files: Vec<String> = files.values().flat_map(|text| images(text)).collect();
    assert_eq!(of_files.len(), 4, "{of_files:?}");
    assert!(of_files.iter().all(|image| image.starts_with("registry.invalid/podward/")), "{of_files:?}");

    let values = workspace_dir().join("tests/charts/cases/default/values.yaml");
    let of_chart = images(&text(&template("podward-system", &values).stdout));
    // The services, and the jobs of `helm test`, `helm uninstall` and `helm rollback`.
    assert_eq!(of_chart.len(), 7, "{of_chart:?}");
    assert!(of_chart.iter().all(|image| image.starts_with("registry.example.com/podward/")), "{of_chart:?}");
}

/// Every image can be pinned by its digest, without a registry for the rest.
#[test]
fn each_image_can_be_complete() {
    let values = tempfile::NamedTempFile::new().unwrap();
    let image = |name: &str| format!("registry.example.com/podward/{name}@sha256:{}", "0".repeat(64));
    let programs = podward_images::ServiceImages::PROGRAMS;
    let enabled = |name: &str| if name == "service-discovery-bridge" { ", enabled: true" } else { "" };
    let line = |name: &str| format!("{name}: {{image: {}{}}}\n", image(name), enabled(name));
    let lines: String = programs.map(line).concat();
    let more = "global: {nodeAgent: {enabled: true}}\ncloneset: {enabled: auto}\n";
    fs::write(values.path(), format!("{more}{lines}")).unwrap();
    let rendered = template("podward-system", values.path());
    assert!(rendered.status.success(), "{}", text(&rendered.stderr));
    let rendered = text(&rendered.stdout);
    for name in programs {
        assert!(rendered.contains(&format!("image: {}", image(name))), "{name}: {rendered}");
    }
}

/// The values in `docs/guides/installing.md`, Harden, give each service a NetworkPolicy with peers.
#[test]
fn the_values_that_harden_an_installation_render() {
    let page = fs::read_to_string(workspace_dir().join("docs/guides/installing.md")).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with("Harden\n")).unwrap();
    let values = tempfile::NamedTempFile::new().unwrap();
    let blocks = section.split("  ```yaml\n").skip(1).map(|block| block.split("  ```\n").next().unwrap());
    let blocks: Vec<String> =
        blocks.map(|block| block.replace("sha256:...", &format!("sha256:{:064}", 0))).collect();
    assert!(blocks.len() >= 2, "{section}");
    fs::write(values.path(), "global: {image: {registry: registry.example.com}}\n").unwrap();
    let mut command = Command::new(program());
    command.current_dir(workspace_dir()).args([
        "template",
        "podward",
        "charts/podward",
        "--namespace",
        "podward-system",
    ]);
    command.arg("--values").arg(values.path());
    let folder = tempfile::tempdir().unwrap();
    for (number, block) in blocks.iter().enumerate() {
        let file = folder.path().join(number.to_string());
        let lines = block.lines().map(|line| format!("{}\n", line.strip_prefix("  ").unwrap_or(line)));
        fs::write(&file, lines.collect::<String>()).unwrap();
        command.arg("--values").arg(file);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rendered = text(&output.stdout);
    assert_eq!(rendered.matches("kind: NetworkPolicy").count(), 4, "{rendered}");
    assert!(
        rendered.contains("image: registry.example.com/podward/mutating-webhook:0.1.0@sha256:"),
        "{rendered}"
    );
}

/// Renders the chart with these values, and a registry.
fn with_values(more: &str) -> String {
    let values = tempfile::NamedTempFile::new().unwrap();
    fs::write(values.path(), format!("global: {{image: {{registry: registry.example.com}}}}\n{more}\n"))
        .unwrap();
    let rendered = template("podward-system", values.path());
    assert!(rendered.status.success(), "{}", text(&rendered.stderr));
    text(&rendered.stdout)
}

fn object_of(rendered: &str, kind: &str) -> serde_json::Value {
    let mut all = rendered.split("\n---\n").filter(|text| text.contains(&format!("\nkind: {kind}\n")));
    serde_saphyr::from_str(all.next().unwrap()).unwrap()
}

/// The values of `global` belong to all charts of an umbrella chart. Misspelled ones are told at the installation.
#[test]
fn values_of_other_charts_are_accepted_and_told() {
    let values = tempfile::NamedTempFile::new().unwrap();
    let global =
        serde_json::json!({"image": {"registry": "registry.example.com"}, "strikt": true, "postgresql": {}});
    fs::write(values.path(), serde_json::json!({"global": global}).to_string()).unwrap();
    let installed = helm(
        &["install", "podward", "charts/podward", "--namespace", "podward-system", "--dry-run=client"],
        values.path(),
    );
    let said = text(&installed.stdout);
    assert!(installed.status.success(), "{}", text(&installed.stderr));
    let told = said.lines().find(|line| line.starts_with("Podward does not use these values")).unwrap();
    // The keys of values.yaml are known, and are among the values of every installation.
    assert!(told.ends_with(": global.postgresql, global.strikt."), "{told}");
}

#[test]
fn the_alerts_and_the_dashboard_of_the_chart_are_those_of_deploy() {
    for (from, to) in rendered::COPIES {
        let read = |path: &str| fs::read_to_string(workspace_dir().join(path)).unwrap_or_default();
        assert!(read(from) == read(to), "run `cargo xtask deploy`: {to} differs");
    }
    let rendered =
        with_values("alerts: {enabled: true, labels: {release: prometheus}}\ndashboard: {enabled: true}");
    let rule = object_of(&rendered, "PrometheusRule");
    assert_eq!(rule["metadata"]["labels"]["release"], "prometheus");
    let written = fs::read_to_string(workspace_dir().join("deploy/alerts/podward.yaml")).unwrap();
    let written: serde_json::Value = serde_saphyr::from_str(&written).unwrap();
    assert_eq!(rule["spec"], written["spec"]);
    let dashboard = object_of(&rendered, "ConfigMap");
    assert_eq!(dashboard["metadata"]["labels"]["grafana_dashboard"], "1");
    let written = fs::read_to_string(workspace_dir().join("deploy/dashboards/podward.json")).unwrap();
    assert_eq!(dashboard["data"]["podward.json"].as_str().unwrap().trim(), written.trim());
}

#[test]
fn alerts_lead_to_the_runbooks_of_the_company() {
    let rendered = with_values("alerts: {enabled: true, runbookUrl: \"https://wiki.example.com/podward/\"}");
    let rule = object_of(&rendered, "PrometheusRule");
    let groups = rule["spec"]["groups"].as_array().unwrap();
    for alert in groups.iter().flat_map(|group| group["rules"].as_array().unwrap()) {
        let url = format!("https://wiki.example.com/podward/{}.md", alert["alert"].as_str().unwrap());
        assert_eq!(alert["annotations"]["runbook_url"], url.as_str());
    }
}

/// Without definitions of its own, a revision takes none back. The rights are for the definitions that it has.
#[test]
fn the_rollback_guard_is_for_the_definitions_of_the_release() {
    let of = |values: &str| -> Option<(serde_json::Value, String)> {
        let rendered = with_values(values);
        let documents: Vec<&str> = rendered.split("\n---\n").collect();
        let parts = documents.iter().filter(|text| text.contains("\n  name: podward-rollback-guard\n"));
        let parts: Vec<&&str> = parts.collect();
        let role = parts.iter().find(|text| text.contains("\nkind: ClusterRole\n"))?;
        let job = parts.iter().find(|text| text.contains("\nkind: Job\n")).unwrap();
        assert_eq!(parts.len(), 4, "{rendered}");
        Some((serde_saphyr::from_str(role).unwrap(), (**job).to_owned()))
    };
    let names = |role: &serde_json::Value| -> BTreeSet<String> {
        serde_json::from_value(role["rules"][0]["resourceNames"].clone()).unwrap()
    };
    let own = podward_api::crds().into_iter().map(|definition| definition.metadata.name.unwrap());
    let mut own: BTreeSet<String> = own.collect();
    let (role, job) = of("").unwrap();
    assert_eq!(names(&role), own);
    assert!(job.contains("- --before-rollback\n") && !job.contains("--clonesets"), "{job}");
    let (role, job) = of("cloneset: {enabled: auto}").unwrap();
    own.insert("clonesets.apps.kruise.io".to_owned());
    assert_eq!(names(&role), own);
    assert!(job.contains("- --clonesets\n"), "{job}");
    assert!(of("crds: {install: false}").is_none());
    assert!(of("rollbackGuard: {enabled: false}").is_none());
}

/// Whoever disables the aggregation says who has which right.
#[test]
fn roles_of_kubernetes_get_rights_only_if_the_values_say_so() {
    let label = "rbac.authorization.k8s.io/aggregate-to-";
    let right = "verbs: [break-glass]";
    let with = with_values("");
    assert!(with.contains(label) && with.contains(right), "{with}");
    let without = with_values("rbac: {aggregate: false}");
    assert!(!without.contains(label) && without.contains(right), "{without}");
}

/// Flux drops links of a chart that it reads from a repository.
#[test]
fn the_chart_contains_no_link() {
    let mut folders = vec![workspace_dir().join("charts/podward")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            assert!(!path.is_symlink(), "{} is a link", path.display());
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
}

#[test]
fn the_chart_is_of_this_version() {
    for chart in charts_of("charts/podward") {
        let written = fs::read_to_string(&chart).unwrap();
        let version = format!("version: {}", env!("CARGO_PKG_VERSION"));
        assert!(written.lines().any(|line| line == version), "{} is not {version}", chart.display());
    }
}

/// Returns the `Chart.yaml` of a chart and of its subcharts.
fn charts_of(chart: &str) -> Vec<PathBuf> {
    let chart = workspace_dir().join(chart);
    let subcharts = fs::read_dir(chart.join("charts")).unwrap().map(|entry| entry.unwrap().path());
    subcharts.chain([chart]).map(|folder| folder.join("Chart.yaml")).collect()
}
