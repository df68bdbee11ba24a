use super::*;
use podward_images::workspace_dir;

async fn documents() -> [Value; 2] {
    let packages = ["mutating-webhook", "lifecycle-controller"];
    let materials = Materials::of(&packages).await.expect("cargo's reports");
    packages.map(|package| {
        let document = materials.document(package).expect("a document");
        serde_json::from_slice(document.content()).expect("JSON")
    })
}

fn names(document: &Value) -> BTreeSet<&str> {
    let components = document["components"].as_array().expect("components");
    components.iter().map(|component| component["name"].as_str().expect("a name")).collect()
}

#[tokio::test]
async fn it_lists_what_is_linked_in_and_nothing_else() {
    let [webhook, controller] = documents().await;
    let lock = std::fs::read_to_string(workspace_dir().join("Cargo.lock")).expect("the lock file");
    let ((_, version), checksum) = crates::checksums(&lock)
        .into_iter()
        .find(|((name, _), _)| name == "tokio")
        .expect("tokio in the lock file");
    for document in [&webhook, &controller] {
        let components = document["components"].as_array().expect("components");
        let tokio = components.iter().find(|component| component["name"] == "tokio").expect("tokio");
        assert_eq!(tokio["version"], version);
        assert_eq!(tokio["purl"], format!("pkg:cargo/tokio@{version}"));
        assert_eq!(tokio["hashes"][0]["content"], checksum);
        assert_eq!(tokio["licenses"][0]["expression"], "MIT");
        let names = names(document);
        assert!(names.is_superset(&["ring", "rustls", "std"].into()), "{names:?}");
        // Crates of tests, build scripts, macros and the task runner.
        for absent in [
            "proptest",
            "podward-testbed",
            "protox",
            "tonic-prost-build",
            "syn",
            "serde_derive",
            "clap_derive",
        ] {
            assert!(lock.contains(&format!("name = \"{absent}\"")), "{absent} is in no program at all");
            assert!(!names.contains(absent), "{absent} in {names:?}");
        }
    }
    assert_eq!(webhook["metadata"]["component"]["name"], "mutating-webhook");
    assert_eq!(controller["metadata"]["component"]["name"], "lifecycle-controller");
    assert!(
        names(&controller).contains("podward-proto") && !names(&webhook).contains("lifecycle-controller")
    );
}

#[tokio::test]
async fn every_reference_leads_to_a_component() {
    for document in documents().await {
        let refs = |component: &Value| component["bom-ref"].as_str().expect("a reference").to_owned();
        let components = document["components"].as_array().expect("components");
        let mut known: BTreeSet<String> = components.iter().map(refs).collect();
        assert_eq!(known.len(), components.len(), "two components of one name");
        known.insert(refs(&document["metadata"]["component"]));
        let mut needed = BTreeSet::new();
        for dependency in document["dependencies"].as_array().expect("dependencies") {
            assert!(known.contains(dependency["ref"].as_str().expect("a reference")), "{dependency}");
            let on = dependency["dependsOn"].as_array().expect("a list").iter();
            needed.extend(on.map(|on| on.as_str().expect("a reference").to_owned()));
        }
        assert!(needed.is_subset(&known), "{:?}", needed.difference(&known));
        // Each component but the program is a dependency of another.
        assert_eq!(known.difference(&needed).count(), 1);
    }
}

#[test]
fn a_crate_that_is_listed_again_keeps_what_is_below_it() {
    let tree = "0 a v1.0.0 (/x)\n1 b v0.2.0\n2 c v3.0.0+d\n1 c v3.0.0+d (*)\n\n0 e v1.0.0\n1 b v0.2.0 (*)\n";
    let edges = crates::edges(tree).expect("a tree");
    let below = |name: &str| -> Vec<&str> {
        let (_, below) = edges.iter().find(|((other, _), _)| other == name).expect("a crate");
        below.iter().map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!((below("a"), below("b"), below("e")), (vec!["b", "c"], vec!["c"], vec!["b"]));
    assert!(below("c").is_empty());
    crates::edges("something else").expect_err("no tree");
}
