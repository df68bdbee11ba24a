//! The crates of programs, as cargo resolves them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use podward_testbed::{cargo, workspace_dir};
use serde_json::Value;
use tokio::process::Command;

/// Name and version. No two crates in the lock file have both in common.
type Id = (String, String);

/// A crate in some version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) licence: Option<String>,
    pub(super) repository: Option<String>,
    pub(super) checksum: Option<String>,
}

impl Crate {
    /// How it is called across ecosystems (purl specification, type `cargo`).
    pub(super) fn purl(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version.replace('+', "%2B"))
    }
}

/// What is known of all crates.
pub(super) struct Crates {
    about: BTreeMap<Id, Crate>,
    edges: BTreeMap<Id, BTreeSet<Id>>,
    /// The version of Rust.
    pub(super) rust: String,
    /// The version of the C library that is linked in.
    pub(super) libc: Option<String>,
}

/// The crates of one program.
pub(super) struct Linked<'a> {
    pub(super) root: &'a Crate,
    /// All others, by name.
    pub(super) below: BTreeSet<&'a Crate>,
    crates: &'a Crates,
}

impl Linked<'_> {
    /// The names of what `it` needs.
    pub(super) fn needs(&self, it: &Crate) -> impl Iterator<Item = String> {
        let id = (it.name.clone(), it.version.clone());
        let needs = self.crates.edges.get(&id).into_iter().flatten();
        needs.filter_map(|id| self.crates.about.get(id)).map(Crate::purl)
    }
}

impl Crates {
    pub(super) async fn of(packages: &[&str]) -> Result<Self> {
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        // Of cargo's reports this is the one by the features that a build of these packages has.
        let mut arguments = vec!["tree", "--locked", "--edges=normal,no-proc-macro", "--prefix=depth"];
        arguments.extend(["--format= {p}", "--target", &target]);
        arguments.extend(packages.iter().flat_map(|package| ["--package", *package]));
        let mut tree = cargo();
        tree.args(arguments);
        let mut metadata = cargo();
        metadata.args(["metadata", "--locked", "--format-version=1", "--filter-platform", &target]);
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.arg("--version").current_dir(workspace_dir());
        let lock = workspace_dir().join("Cargo.lock");
        let lock =
            std::fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
        let mut getconf = Command::new("getconf");
        getconf.arg("GNU_LIBC_VERSION");
        let libc =
            said(getconf).await.ok().and_then(|said| Some(said.trim().strip_prefix("glibc ")?.to_owned()));
        let metadata: Value =
            serde_json::from_str(&said(metadata).await?).context("understand cargo's metadata")?;
        let rust = said(rustc).await?.split(' ').nth(1).unwrap_or("unknown").to_owned();
        Ok(Self { about: about(&metadata, &checksums(&lock)), edges: edges(&said(tree).await?)?, rust, libc })
    }

    /// The crates of `package`'s program.
    pub(super) fn linked(&self, package: &str) -> Result<Linked<'_>> {
        let crate_of = |id: &Id| {
            self.about
                .get(id)
                .with_context(|| format!("cargo tree lists {} {}, and cargo metadata doesn't", id.0, id.1))
        };
        let root = self.edges.keys().find(|(name, _)| name == package);
        let root = root.with_context(|| format!("cargo tree lists no package {package}"))?;
        let (mut seen, mut next) = (BTreeSet::new(), vec![root]);
        while let Some(id) = next.pop() {
            next.extend(self.edges.get(id).into_iter().flatten().filter(|below| seen.insert(*below)));
        }
        let below = seen.into_iter().map(crate_of).collect::<Result<_>>()?;
        Ok(Linked { root: crate_of(root)?, below, crates: self })
    }
}

/// What a command prints.
async fn said(mut command: Command) -> Result<String> {
    let shown = command.as_std().get_program().to_string_lossy().into_owned();
    let output = command.output().await.with_context(|| format!("cannot run {shown}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{shown} failed ({}): {}", output.status, complaint.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Who needs whom, from lines such as `1 tokio v1.54.1 (*)`: the depth, the crate. What is below a crate is listed where it is named
/// first.
pub(super) fn edges(tree: &str) -> Result<BTreeMap<Id, BTreeSet<Id>>> {
    let mut edges: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
    let mut path: Vec<Id> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace();
        let (depth, name, version) = (words.next(), words.next(), words.next());
        let depth: Option<usize> = depth.and_then(|depth| depth.parse().ok());
        let version = version.and_then(|version| version.strip_prefix('v'));
        let (Some(depth), Some(name), Some(version)) = (depth, name, version) else {
            anyhow::bail!("cannot understand the line {line:?} of cargo tree");
        };
        let id = (name.to_owned(), version.to_owned());
        path.truncate(depth);
        if let Some(above) = path.last() {
            edges.entry(above.clone()).or_default().insert(id.clone());
        }
        edges.entry(id.clone()).or_default();
        path.push(id);
    }
    Ok(edges)
}

fn about(metadata: &Value, checksums: &BTreeMap<Id, String>) -> BTreeMap<Id, Crate> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let about = packages.filter_map(|package| {
        let text = |field: &str| package[field].as_str().map(str::to_owned);
        let id = (text("name")?, text("version")?);
        // The slash is what cargo took for "or" before it knew SPDX.
        let licence = text("license").map(|licence| licence.replace('/', " OR "));
        let (name, version) = id.clone();
        let checksum = checksums.get(&id).cloned();
        Some((id, Crate { name, version, licence, repository: text("repository"), checksum }))
    });
    about.collect()
}

/// The checksums of the lock file, which is TOML of the plainest kind: one field a line, cargo's own writing.
pub(super) fn checksums(lock: &str) -> BTreeMap<Id, String> {
    let packages = lock.split("[[package]]").skip(1).filter_map(|package| {
        let field = |name: &str| {
            let mut lines = package.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))?;
            Some(value.trim_matches('"').to_owned())
        };
        Some(((field("name")?, field("version")?), field("checksum")?))
    });
    packages.collect()
}
