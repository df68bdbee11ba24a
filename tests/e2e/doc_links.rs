//! Checks that the links of the documentation lead somewhere: to a file of the repository, and to a heading in it. It
//! needs no cluster.
#![forbid(unsafe_code)]
// The helpers of tests are tests, too.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use podward_images::workspace_dir;

/// Returns the pages of the repository: those at its top, and all below `docs`.
fn pages() -> Vec<PathBuf> {
    fn add(folder: &Path, is_deep: bool, found: &mut Vec<PathBuf>) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if is_deep && path.is_dir() {
                add(&path, true, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    add(&workspace_dir(), false, &mut found);
    add(&workspace_dir().join("docs"), true, &mut found);
    found
}

/// Returns the text outside of code blocks.
fn prose(page: &str) -> String {
    let mut is_code = false;
    let outside = page.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    outside.collect::<Vec<_>>().join("\n")
}

/// Returns the anchors of the headings, as GitHub forms them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(page);
    let headings =
        headings.lines().filter_map(|line| line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' '));
    headings
        .map(|heading| {
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '));
            let anchor: String =
                kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
            let count = seen.entry(anchor.clone()).or_default();
            *count += 1;
            if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
        })
        .collect()
}

/// Returns the targets of the links that stay in the repository. Code, such as a regular expression, has none.
fn links(page: &str) -> Vec<String> {
    let text: String = prose(page).split('`').step_by(2).collect();
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let targets = targets.map(|(target, _)| target.to_owned());
    targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace)).collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        for link in links(&page) {
            checked += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let is_there = target.exists()
                && (anchor.is_empty() || anchors(&fs::read_to_string(&target).unwrap()).contains(anchor));
            if !is_there {
                wrong.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(checked > 300, "only {checked} links were found");
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn anchors_are_those_of_github() {
    let page = "# A `code`, and (more)\n\n```sh\n# no heading\n```\n## Twice\n## Twice\n";
    assert_eq!(anchors(page).into_iter().collect::<Vec<_>>(), ["a-code-and-more", "twice", "twice-1"]);
    assert_eq!(links("[`a`](b.md#c) [d](https://e) `[x](y)`\n```\n[f](g)\n```\n"), ["b.md#c"]);
}
