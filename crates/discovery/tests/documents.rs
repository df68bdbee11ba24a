//! The bindings and registries in `docs/registries` are valid.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use podward_api::{ClusterRegistry, DiscoveryBinding};
use podward_discovery::{RegistrySecrets, check_mode, connect};
use podward_registries::DirectDialer;
use serde_json::Value;

/// Returns the documents in the YAML blocks of a page.
fn documents(page: &str) -> Vec<Value> {
    let blocks = page.split("```yaml\n").skip(1).map(|block| block.split("```").next().unwrap_or_default());
    blocks
        .flat_map(|block| block.split("\n---\n"))
        .map(|text| serde_saphyr::from_str(text).unwrap())
        .collect()
}

#[tokio::test]
async fn examples_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/registries");
    let (mut bindings, mut registries) = (0, 0);
    for entry in fs::read_dir(folder).unwrap() {
        for document in documents(&fs::read_to_string(entry.unwrap().path()).unwrap()) {
            let connect = |connection| {
                connect(connection, RegistrySecrets::default(), Arc::new(DirectDialer), "connection").unwrap()
            };
            match document["kind"].as_str().unwrap() {
                "DiscoveryBinding" => {
                    let binding: DiscoveryBinding = serde_json::from_value(document).unwrap();
                    binding.check().unwrap();
                    let connection = binding.spec.registry.connection.unwrap();
                    check_mode(binding.spec.mode, connection.kind, &*connect(&connection)).unwrap();
                    bindings += 1;
                }
                "ClusterRegistry" => {
                    let registry: ClusterRegistry = serde_json::from_value(document).unwrap();
                    registry.check().unwrap();
                    connect(&registry.spec.connection);
                    registries += 1;
                }
                _ => {}
            }
        }
    }
    assert!(bindings == 8 && registries == 1, "{bindings} bindings, {registries} registries");
}
