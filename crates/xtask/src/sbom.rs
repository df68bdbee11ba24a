//! Software bills of materials in the format CycloneDX 1.6, as JSON.
//!
//! A document lists the crates that are compiled into a program, with licence and checksum, the standard library and
//! the C library. Crates that are used only by build scripts, derive macros or tests are not listed. The document has
//! no timestamps and no random numbers, so that the same sources result in the same document.

mod crates;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use anyhow::Result;
use podward_images::Blob;
use serde_json::{Value, json};

use crates::{Crate, LinkedCrates};

/// The media type of a document.
const MEDIA_TYPE: &str = "application/vnd.cyclonedx+json";

/// The data for the bills of materials of several programs.
pub(crate) struct Materials(crates::ResolvedCrates);

impl Materials {
    /// Reads the crates of `packages` from cargo. They are built together, with unified features.
    ///
    /// # Errors
    /// When cargo fails.
    pub(crate) async fn of(packages: &[&str]) -> Result<Self> {
        crates::ResolvedCrates::of(packages).await.map(Self)
    }

    /// Returns the document for the program of `package`.
    ///
    /// # Errors
    /// When `package` is not one of the packages.
    pub(crate) fn document(&self, package: &str) -> Result<Blob> {
        let linked = self.0.linked(package)?;
        let std = json!({
            "type": "library",
            "bom-ref": "std",
            "name": "std",
            "version": self.0.rust,
            "purl": format!("pkg:generic/rust-std@{}", self.0.rust),
            "licenses": [{ "expression": "MIT OR Apache-2.0" }],
        });
        let libc = self.0.libc.as_ref().map(|version| {
            json!({
                "type": "library",
                "bom-ref": "libc",
                "name": "glibc",
                "version": version,
                "purl": format!("pkg:generic/glibc@{version}"),
                "licenses": [{ "expression": "LGPL-2.1-or-later" }],
            })
        });
        let below = [Some("std"), libc.as_ref().map(|_| "libc")].into_iter().flatten();
        let mut components: Vec<Value> = linked.below.iter().map(|each| component("library", each)).collect();
        components.extend([Some(std), libc].into_iter().flatten());
        let document = json!({
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {
                "lifecycles": [{ "phase": "build" }],
                "component": component("application", linked.root),
            },
            "components": components,
            "dependencies": dependencies(&linked, below),
        });
        // Indented, for people.
        Ok(Blob::new(MEDIA_TYPE, format!("{document:#}\n").into_bytes()))
    }
}

fn component(kind: &str, it: &Crate) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": it.purl(),
        "name": it.name,
        "version": it.version,
        "purl": it.purl(),
    });
    if let Some(licence) = &it.licence {
        component["licenses"] = json!([{ "expression": licence }]);
    }
    if let Some(checksum) = &it.checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    if let Some(repository) = &it.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    component
}

/// Returns the dependencies of each component. `of_every_program` are the dependencies of every Rust program.
fn dependencies<'a>(
    linked: &LinkedCrates<'_>,
    of_every_program: impl Iterator<Item = &'a str>,
) -> Vec<Value> {
    let mut root: BTreeSet<String> = of_every_program.map(str::to_owned).collect();
    root.extend(linked.dependencies_of(linked.root));
    let mut all = vec![json!({ "ref": linked.root.purl(), "dependsOn": root })];
    all.extend(linked.below.iter().map(|each| {
        let needed: BTreeSet<String> = linked.dependencies_of(each).collect();
        json!({ "ref": each.purl(), "dependsOn": needed })
    }));
    all
}
