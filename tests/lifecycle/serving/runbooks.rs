//! The checks of rights in the runbooks: on an installation without problems, the answer is yes.

use std::{fs, sync::Arc};

use anyhow::{Context, Result, ensure};
use podward_e2e::{Fixture, Test};
use podward_images::workspace_dir;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::serving("rights_that_runbooks_check_exist", rights_exist)]
}

const CHECK: &str = "kubectl auth can-i ";

async fn rights_exist(fixture: Arc<Fixture>) -> Result<()> {
    let mut checked = 0;
    for entry in fs::read_dir(workspace_dir().join("docs/runbooks")).context("list the runbooks")? {
        let path = entry?.path();
        let page = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        // A command can be continued on the next line.
        let page = page.replace("\\\n", " ");
        for line in page.lines().filter_map(|line| line.strip_prefix(CHECK)) {
            let arguments: Vec<&str> = ["auth", "can-i"].into_iter().chain(line.split_whitespace()).collect();
            // It ends with an error if the answer is no.
            let answer = fixture.installation()?.kubectl(&arguments).await;
            answer.with_context(|| format!("{} checks a right that does not exist", path.display()))?;
            checked += 1;
        }
    }
    ensure!(checked > 5, "only {checked} checks were found");
    Ok(())
}
