//! The version of Kubernetes.

use anyhow::{Context, Result};
use kube::Client;

use super::super::finding::Finding;

/// The minor versions that Podward is made for. The tests run on [`TESTED`].
const SUPPORTED: std::ops::RangeInclusive<u32> = 33..=37;
const TESTED: u32 = 36;

pub(super) async fn check(client: &Client) -> Result<Vec<Finding>> {
    let version = client.apiserver_version().await.context("read the version of the API server")?;
    Ok(vec![judge(&version.major, &version.minor, &version.git_version)])
}

fn judge(major: &str, minor: &str, text: &str) -> Finding {
    // Some clouds write `33+`.
    let number = minor.trim_end_matches(|letter: char| !letter.is_ascii_digit()).parse::<u32>();
    match (major, number) {
        ("1", Ok(TESTED)) => Finding::ok(format!("Kubernetes {text}")),
        ("1", Ok(minor)) if SUPPORTED.contains(&minor) => {
            Finding::note(format!("Kubernetes {text} is supported; Podward's tests run on 1.{TESTED}"))
        }
        ("1", Ok(minor)) if minor < *SUPPORTED.start() => Finding::failed(
            format!("Kubernetes {text} is too old: Podward needs 1.{} or later", SUPPORTED.start()),
            "upgrade Kubernetes first",
        ),
        _ => Finding::warning(
            format!("Kubernetes {text} is newer than what Podward is made for (1.{})", SUPPORTED.end()),
            "look for a newer version of Podward",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::FindingLevel;

    #[test]
    fn versions_are_compared() {
        for (minor, level) in [
            ("32", FindingLevel::Failed),
            ("33+", FindingLevel::Note),
            ("36", FindingLevel::Ok),
            ("38", FindingLevel::Warning),
        ] {
            assert_eq!(judge("1", minor, "v").level, level, "{minor}");
        }
    }
}
