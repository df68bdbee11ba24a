//! The types and fields of an API, as k8s-openapi generates them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use syn::Item;

use super::rust_files::rust_files;

/// The fields of each type, by the path of the file and the name of the type. Whether a field is optional does not matter: it
/// is the same JSON.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ApiFields(BTreeMap<String, BTreeSet<String>>);

/// A type or a field that a newer API does not have.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Missing {
    /// The file and the name of the type.
    pub(super) of: String,
    /// The name of the field. `None` if the type itself is missing.
    pub(super) field: Option<String>,
}

impl ApiFields {
    /// Reads the types of a version: all files below `folder`.
    ///
    /// # Errors
    /// When a file cannot be read or parsed.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut found = Self::default();
        for (path, text) in rust_files(folder)? {
            let below = path.strip_prefix(folder).unwrap_or(&path).with_extension("");
            found.add(&below.display().to_string(), &text)?;
        }
        Ok(found)
    }

    /// Adds the types of a file.
    fn add(&mut self, file: &str, text: &str) -> Result<()> {
        let parsed = syn::parse_file(text).with_context(|| format!("parse {file}"))?;
        for item in parsed.items {
            let Item::Struct(item) = item else { continue };
            let fields = item.fields.iter().filter_map(|field| Some(field.ident.as_ref()?.to_string()));
            self.0.insert(format!("{file}::{}", item.ident), fields.collect());
        }
        Ok(())
    }

    /// Returns what `newer` does not have.
    pub(super) fn missing_in(&self, newer: &Self) -> Vec<Missing> {
        let mut missing = Vec::new();
        for (of, fields) in &self.0 {
            let Some(there) = newer.0.get(of) else {
                missing.push(Missing { of: of.clone(), field: None });
                continue;
            };
            let gone = fields.difference(there);
            missing.extend(gone.map(|name| Missing { of: of.clone(), field: Some(name.clone()) }));
        }
        missing
    }
}

impl Missing {
    /// Returns the path of the module by which a program uses it, such as `core::v1`.
    pub(super) fn module(&self) -> String {
        let file = self.of.split("::").next().unwrap_or_default();
        let mut parts: Vec<&str> = file.rsplit('/').skip(1).take(2).collect();
        parts.reverse();
        parts.join("::")
    }

    /// Returns the word by which a program uses it.
    pub(super) fn word(&self) -> &str {
        match &self.field {
            Some(field) => field,
            None => self.of.rsplit("::").next().unwrap_or(&self.of),
        }
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.field {
            Some(field) => write!(f, "{}.{field}", self.of),
            None => f.write_str(&self.of),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> ApiFields {
        let mut fields = ApiFields::default();
        fields.add("api/core/v1/pod", text).unwrap();
        fields
    }

    #[test]
    fn what_a_newer_api_lacks_is_found_and_optional_fields_are_the_same() {
        let old = fields("pub struct Pod { pub a: Option<i32>, pub b: i64, pub c: String } pub struct Gone;");
        let new = fields("pub struct Pod { pub a: i32, pub b: i32, pub d: String }");
        let missing: Vec<String> = old.missing_in(&new).iter().map(ToString::to_string).collect();
        let expected = ["api/core/v1/pod::Gone", "api/core/v1/pod::Pod.c"];
        assert_eq!(missing, expected);
        assert_eq!(old.missing_in(&old), []);
        let words: Vec<String> = old.missing_in(&new).iter().map(|it| it.word().to_owned()).collect();
        assert_eq!(words, ["Gone", "c"]);
        assert_eq!(old.missing_in(&new)[0].module(), "core::v1");
    }
}
