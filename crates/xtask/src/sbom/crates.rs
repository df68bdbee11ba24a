//! The crates of a program, as cargo resolves them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use podward_images::{cargo, workspace_dir};
use serde_json::Value;
use tokio::process::Command;

/// Name and version, which are unique in the lock file.
type CrateId = (String, String);

/// A version of a crate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) licence: Option<String>,
    pub(super) repository: Option<String>,
    pub(super) checksum: Option<String>,
}

impl Crate {
    /// Returns the package URL (purl specification, type `cargo`).
    pub(super) fn purl(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version.replace('+', "%2B"))
    }
}

/// The crates that cargo resolves for a set of packages.
pub(super) struct ResolvedCrates {
    about: BTreeMap<CrateId, Crate>,
    edges: BTreeMap<CrateId, BTreeSet<CrateId>>,
    /// The version of Rust.
    pub(super) rust: String,
    /// The version of the C library, if it is glibc.
    pub(super) libc: Option<String>,
}

/// The crates that are linked into a program.
pub(super) struct LinkedCrates<'a> {
    pub(super) root: &'a Crate,
    /// All crates but the program's own.
    pub(super) below: BTreeSet<&'a Crate>,
    crates: &'a ResolvedCrates,
}

impl LinkedCrates<'_> {
    /// Returns the package URLs of the dependencies of `it`.
    pub(super) fn dependencies_of(&self, it: &Crate) -> impl Iterator<Item = String> {
        let id = (it.name.clone(), it.version.clone());
        let dependencies = self.crates.edges.get(&id).into_iter().flatten();
        dependencies.filter_map(|id| self.crates.about.get(id)).map(Crate::purl)
    }
}

impl ResolvedCrates {
    /// Returns the crates of `packages`, which are built together with unified features.
    ///
    /// # Errors
    /// When cargo or rustc fails.
    pub(super) async fn of(packages: &[&str]) -> Result<Self> {
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        // Unlike `cargo metadata`, `cargo tree` respects the features of a build of these packages.
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
        let libc = output_of(getconf)
            .await
            .ok()
            .and_then(|text| Some(text.trim().strip_prefix("glibc ")?.to_owned()));
        let metadata: Value = serde_json::from_str(&output_of(metadata).await?)
            .context("parse the output of cargo metadata")?;
        let rust = output_of(rustc).await?.split(' ').nth(1).unwrap_or("unknown").to_owned();
        Ok(Self {
            about: about(&metadata, &checksums(&lock)),
            edges: edges(&output_of(tree).await?)?,
            rust,
            libc,
        })
    }

    /// Returns the crates that are linked into the program of `package`.
    ///
    /// # Errors
    /// When cargo did not list the package.
    pub(super) fn linked(&self, package: &str) -> Result<LinkedCrates<'_>> {
        let crate_of = |id: &CrateId| {
            self.about
                .get(id)
                .with_context(|| format!("cargo tree lists {} {}, and cargo metadata does not", id.0, id.1))
        };
        let root = self.edges.keys().find(|(name, _)| name == package);
        let root = root.with_context(|| format!("cargo tree lists no package {package}"))?;
        let (mut seen, mut next) = (BTreeSet::new(), vec![root]);
        while let Some(id) = next.pop() {
            next.extend(self.edges.get(id).into_iter().flatten().filter(|below| seen.insert(*below)));
        }
        let below = seen.into_iter().map(crate_of).collect::<Result<_>>()?;
        Ok(LinkedCrates { root: crate_of(root)?, below, crates: self })
    }
}

/// Returns the standard output of a command.
async fn output_of(mut command: Command) -> Result<String> {
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let output = command.output().await.with_context(|| format!("cannot run {program}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed ({}): {}", output.status, errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the dependencies of each crate, from the output of `cargo tree`. A line has the depth and the crate, such as
/// `1 tokio v1.54.1 (*)`. The dependencies of a crate are listed only where it occurs first.
///
/// # Errors
/// When a line has another format.
pub(super) fn edges(tree: &str) -> Result<BTreeMap<CrateId, BTreeSet<CrateId>>> {
    let mut edges: BTreeMap<CrateId, BTreeSet<CrateId>> = BTreeMap::new();
    let mut path: Vec<CrateId> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace();
        let (depth, name, version) = (words.next(), words.next(), words.next());
        let depth: Option<usize> = depth.and_then(|depth| depth.parse().ok());
        let version = version.and_then(|version| version.strip_prefix('v'));
        let (Some(depth), Some(name), Some(version)) = (depth, name, version) else {
            anyhow::bail!("cannot parse the line {line:?} of cargo tree");
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

fn about(metadata: &Value, checksums: &BTreeMap<CrateId, String>) -> BTreeMap<CrateId, Crate> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let about = packages.filter_map(|package| {
        let text = |field: &str| package[field].as_str().map(str::to_owned);
        let id = (text("name")?, text("version")?);
        // Older versions of cargo used a slash for "OR".
        let licence = text("license").map(|licence| licence.replace('/', " OR "));
        let (name, version) = id.clone();
        let checksum = checksums.get(&id).cloned();
        Some((id, Crate { name, version, licence, repository: text("repository"), checksum }))
    });
    about.collect()
}

/// Returns the checksums in the lock file. Cargo writes it with one field a line, so no TOML parser is needed.
pub(super) fn checksums(lock: &str) -> BTreeMap<CrateId, String> {
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
