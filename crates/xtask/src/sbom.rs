//! What is in a program: a software bill of materials in the format CycloneDX 1.6, as JSON.
//!
//! It lists the crates that are compiled into the program, for this target and with these features, with licence and checksum; the
//! standard library; and the C library, which is linked in too. Crates that only build it (build scripts, derive macros) or test it are
//! left out. There is no time and no random number in it, so the same sources give the same document.

mod crates;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use anyhow::Result;
use podward_testbed::Blob;
use serde_json::{Value, json};

use crates::{Crate, Linked};

/// The media type of such a document.
const MEDIA_TYPE: &str = "application/vnd.cyclonedx+json";

/// What is known of all crates of the workspace, to make documents of.
pub(crate) struct Materials(crates::Crates);

impl Materials {
    /// Asks cargo. `packages` are those that are built together: what one needs of a crate all of them get.
    pub(crate) async fn of(packages: &[&str]) -> Result<Self> {
        crates::Crates::of(packages).await.map(Self)
    }

    /// The document about the program of `package`.
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
        // One that people can read, too.
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

/// Who needs whom; the program itself needs what every Rust program does.
fn dependencies<'a>(linked: &Linked<'_>, of_every_program: impl Iterator<Item = &'a str>) -> Vec<Value> {
    let mut root: BTreeSet<String> = of_every_program.map(str::to_owned).collect();
    root.extend(linked.needs(linked.root));
    let mut all = vec![json!({ "ref": linked.root.purl(), "dependsOn": root })];
    all.extend(linked.below.iter().map(|each| {
        let needs: BTreeSet<String> = linked.needs(each).collect();
        json!({ "ref": each.purl(), "dependsOn": needs })
    }));
    all
}
