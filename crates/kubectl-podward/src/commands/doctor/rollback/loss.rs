//! The findings on what is lost.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use kube::api::DynamicObject;
use podward_api::downgrade::LostVersion;
use podward_diagnosis::safe_text;

use super::super::finding::{Finding, first_names};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The fields that are lost, each with the objects that have it.
#[derive(Debug, Default)]
pub(super) struct LostFields(BTreeMap<String, BTreeSet<String>>);

impl LostFields {
    /// Adds the fields that an object loses.
    pub(super) fn add(&mut self, object: &DynamicObject, fields: BTreeSet<String>) {
        let name = match object.namespace() {
            Some(namespace) => format!("{namespace}/{}", object.name_any()),
            None => object.name_any(),
        };
        for field in fields {
            self.0.entry(field).or_default().insert(name.clone());
        }
    }
}

/// Returns a finding for each field of the definition that objects lose.
pub(super) fn of_fields(definition: &str, lost: &LostFields) -> Vec<Finding> {
    let finding = |(field, objects): (&String, &BTreeSet<String>)| {
        let field = safe_text(field).replace('\n', " ");
        let what = format!(
            "{definition} of version {VERSION} does not have {field}, which is set in {}",
            first_names(objects)
        );
        Finding::failed(what, format!("remove {field} from these objects, or go on as below"))
    };
    lost.0.iter().map(finding).collect()
}

/// Returns a finding for each version that is lost. `objects` is the number of objects of the definition.
pub(super) fn of_versions(definition: &str, lost: &[LostVersion], objects: usize) -> Vec<Finding> {
    let finding = |LostVersion { name, is_stored }: &LostVersion| match (is_stored, objects) {
        (true, _) => Some(Finding::failed(
            format!(
                "{definition} of version {VERSION} does not have the version {name}, which status.storedVersions \
                 contains"
            ),
            "the API server refuses such a definition, also with --no-hooks: keep the newer one",
        )),
        (false, 0) => None,
        (false, _) => Some(Finding::failed(
            format!(
                "{definition} of version {VERSION} does not serve {name}, and there are {objects} objects"
            ),
            format!("clients that use {name} fail; if there are none, go back all the same, as below"),
        )),
    };
    lost.iter().filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::finding::FindingLevel;
    use super::*;

    fn object(namespace: Option<&str>, name: &str) -> DynamicObject {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": namespace}})).unwrap()
    }

    #[test]
    fn each_field_is_named_with_its_objects() {
        let mut lost = LostFields::default();
        let fields = |fields: &[&str]| fields.iter().map(|field| (*field).to_owned()).collect();
        for name in ["a", "b", "c", "d", "e"] {
            lost.add(&object(None, name), fields(&["spec.shard"]));
        }
        lost.add(&object(Some("shop"), "web"), fields(&["spec.port", "spec.shard\n\u{1b}[31m"]));
        lost.add(&object(None, "f"), fields(&[]));
        let findings = of_fields("hooks.example.com", &lost);
        let said: Vec<&str> = findings.iter().map(|finding| finding.what.as_str()).collect();
        let has_not = format!("hooks.example.com of version {VERSION} does not have");
        let expected = [
            format!("{has_not} spec.port, which is set in shop/web"),
            format!("{has_not} spec.shard, which is set in a, b, c and 2 more"),
            format!("{has_not} spec.shard \\u{{1b}}[31m, which is set in shop/web"),
        ];
        assert_eq!(said, expected);
        assert!(findings.iter().all(|finding| finding.level == FindingLevel::Failed));
    }

    #[test]
    fn a_version_is_a_finding_if_it_is_stored_or_there_are_objects() {
        let version = |is_stored| [LostVersion { name: "v2".to_owned(), is_stored }];
        assert_eq!(of_versions("hooks.example.com", &version(false), 0), []);
        let served = of_versions("hooks.example.com", &version(false), 4);
        assert!(served[0].what.ends_with("does not serve v2, and there are 4 objects"), "{served:?}");
        let stored = of_versions("hooks.example.com", &version(true), 0);
        assert!(stored[0].what.contains("version v2, which status.storedVersions contains"), "{stored:?}");
    }
}
