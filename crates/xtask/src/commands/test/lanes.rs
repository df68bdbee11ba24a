//! Which tests run beside which. Those on clusters mostly wait, so that others can run at the same time.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// On clusters of its own, as most of the tests are; it bears company.
const BESIDE_OTHERS: &str = "e2e";
/// They measure what gets lost and how long things take, so that nothing else may run.
const ALONE: [&str; 2] = ["serving", "install"];

/// Arguments of calls of `cargo test`, one after the other.
pub(super) type Lane = Vec<Vec<String>>;

/// What to run, one after the other: lanes that are beside each other.
pub(super) async fn all() -> Result<Vec<Vec<Lane>>> {
    let names = names().await?;
    let is_apart = |name: &&String| *name == BESIDE_OTHERS || ALONE.contains(&name.as_str());
    let found = names.iter().filter(is_apart).count();
    ensure!(
        found == ALONE.len() + 1,
        "the workspace has no test program {BESIDE_OTHERS}, {} any more",
        ALONE.join(" or ")
    );
    let test = |name: &str| vec!["--test".to_owned(), name.to_owned()];
    let mut others = vec!["--lib".to_owned(), "--bins".to_owned()];
    others.extend(names.iter().filter(|name| !is_apart(name)).flat_map(|name| test(name)));
    // Cargo takes this one alone.
    let documentation = vec!["--doc".to_owned()];
    let alone = ALONE.map(test).to_vec();
    Ok(vec![vec![vec![test(BESIDE_OTHERS)], vec![others, documentation]], vec![alone]])
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
        let all = all().await.unwrap();
        let arguments = all.iter().flatten().flatten().flatten();
        let mut seen: Vec<&String> = arguments.filter(|argument| !argument.starts_with("--")).collect();
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
