//! Which tests run beside which. Those on clusters mostly wait, so two such programs at a time make better use of a machine; more would
//! make each other miss deadlines on one with two processors.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The tests of this lane, one program after the other; everything else is in the other lane. They are about half of the time.
const CLUSTERS: [&str; 2] = ["e2e", "install"];

/// Arguments of calls of `cargo test`, one after the other.
pub(super) type Lane = Vec<Vec<String>>;

/// What to run: each lane beside the others.
pub(super) async fn all() -> Result<[Lane; 2]> {
    let others = names().await?;
    for name in CLUSTERS {
        ensure!(
            others.iter().any(|other| other == name),
            "the workspace has no test program {name} any more"
        );
    }
    let test = |name: &str| ["--test".to_owned(), name.to_owned()];
    let clusters = CLUSTERS.iter().map(|name| test(name).to_vec()).collect();
    let others = others.iter().filter(|name| !CLUSTERS.contains(&name.as_str()));
    let mut programs = vec!["--lib".to_owned(), "--bins".to_owned()];
    programs.extend(others.flat_map(|name| test(name)));
    // Cargo takes this one alone.
    let documentation = vec!["--doc".to_owned()];
    Ok([clusters, vec![programs, documentation]])
}

/// The names of all test programs of the workspace.
async fn names() -> Result<Vec<String>> {
    let mut command = podward_testbed::cargo();
    command.args(["metadata", "--no-deps", "--format-version=1"]);
    let output = command.output().await.context("cannot start cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).context("understand cargo metadata")?;
    Ok(tests_in(&metadata))
}

fn tests_in(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let tests = targets
        .filter(|target| target["kind"].as_array().is_some_and(|kinds| kinds.contains(&"test".into())));
    let mut names: Vec<String> =
        tests.filter_map(|test| test["name"].as_str().map(ToOwned::to_owned)).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_test_program_is_in_one_lane() {
        let lanes = all().await.unwrap();
        let mut seen: Vec<&String> =
            lanes.iter().flatten().flatten().filter(|argument| !argument.starts_with("--")).collect();
        seen.sort();
        assert_eq!(seen, names().await.unwrap().iter().collect::<Vec<_>>());
    }

    #[test]
    fn only_test_programs_are_taken_from_the_metadata() {
        let metadata = serde_json::json!({"packages": [
            {"targets": [{"kind": ["lib"], "name": "a"}, {"kind": ["test"], "name": "c"}]},
            {"targets": [{"kind": ["bin"], "name": "d"}, {"kind": ["test"], "name": "b"}, {"kind": ["test"], "name": "c"}]},
        ]});
        assert_eq!(tests_in(&metadata), ["b", "c"]);
    }
}
