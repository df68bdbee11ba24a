use super::kubernetes::{KubernetesPins, VERSIONS};
use super::*;

#[test]
fn the_pins_name_the_versions() {
    for pins in &VERSIONS {
        assert!(pins.version("k8s.io/kubernetes").starts_with("v1."));
        assert!(pins.version("helm.sh/helm/v4").starts_with("v4."));
        assert!(pins.version("go").starts_with("1."));
    }
    let version = KubernetesPins::chosen().version("k8s.io/kubernetes");
    assert!(pins::Module::Kubernetes.ldflags().contains(&format!("gitVersion={version}")));
    assert_eq!(pins::key().len(), 12);
}

#[test]
fn each_pinned_program_is_a_tool_of_the_module() {
    for pins in &VERSIONS {
        let (_, tools) = pins.go_mod.split_once("tool (").expect("the module has tool lines");
        let tools: Vec<&str> = tools.lines().map(str::trim).collect();
        for program in pins::programs(&Part::ALL).filter(|p| p.module == pins::Module::Kubernetes) {
            assert!(tools.contains(&program.package), "no tool line for {}", program.package);
        }
    }
}

/// A different version would be compiled separately.
#[test]
fn what_coredns_shares_with_kubernetes_has_the_same_version() {
    let requirements = |text: &'static str| {
        let lines = text.lines().map(str::trim).filter(|line| line.ends_with("// indirect"));
        lines.filter_map(|line| line.split_once(' ')).collect::<std::collections::HashMap<_, _>>()
    };
    let kubernetes = requirements(VERSIONS[0].go_mod);
    let shared = requirements(pins::COREDNS_MOD);
    let shared: Vec<_> = shared.into_iter().filter(|(module, _)| kubernetes.contains_key(module)).collect();
    assert!(shared.len() > 20, "{shared:?}");
    for (module, version) in shared {
        assert_eq!(kubernetes[module], version, "{module}");
    }
}

#[test]
fn coredns_has_a_key_of_its_own() {
    let file = pins::file("coredns");
    let key = file.strip_prefix("coredns-").expect("a key in the file's name");
    assert_eq!(key.len(), 12);
    assert_ne!(key, pins::key());
    assert_eq!(pins::file("etcd"), "etcd");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let tools = Tools::at(dir.path().to_owned());
    std::fs::create_dir(dir.path().join("bin")).expect("a folder");
    std::fs::write(dir.path().join("bin/coredns-000000000000"), "").expect("a file");
    assert!(!tools.is_complete(&[Part::Dns]));
    std::fs::write(dir.path().join("bin").join(&file), "").expect("a file");
    assert!(tools.is_complete(&[Part::Dns]));
    assert_eq!(tools.bin("coredns"), dir.path().join("bin").join(file));
}

#[test]
fn programs_are_found_in_every_folder_of_the_layout() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let tools = Tools::at(dir.path().to_owned());
    for (place, name) in [("bin", "etcd"), ("deb/usr/sbin", "runc"), ("deb/bin", "busybox")] {
        std::fs::create_dir_all(dir.path().join(place)).expect("a folder");
        std::fs::write(dir.path().join(place).join(name), "").expect("a file");
        assert_eq!(tools.bin(name), dir.path().join(place).join(name));
    }
    assert_eq!(tools.bin("no-such-program"), dir.path().join("bin/no-such-program"));
    let path = tools.bin_path_env();
    let dirs: Vec<_> = std::env::split_paths(&path).collect();
    assert_eq!(dirs[0], dir.path().join("bin"));
    assert!(!tools.is_complete(&[Part::Helm]));
}

#[test]
fn libraries_are_named_only_when_there_are_any() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let tools = Tools::at(dir.path().to_owned());
    assert_eq!(tools.library_path(), None);
    let libraries = dir.path().join("deb/usr/lib/x86_64-linux-gnu");
    std::fs::create_dir_all(&libraries).expect("a folder");
    assert_eq!(tools.library_path(), Some(libraries.into_os_string()));
}

#[test]
fn missing_requirements_are_listed_with_their_fix() {
    let missing = |what: &str| MissingRequirement {
        what: what.into(),
        why: "to try".into(),
        fix: format!("get {what}"),
    };
    let text = ToolsError::Missing(vec![missing("one"), missing("two")]).to_string();
    assert!(text.contains("one, needed to try; to fix it: get one"), "{text}");
    assert!(text.contains("get two"), "{text}");
}

#[tokio::test]
async fn a_second_builder_waits_for_the_first() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("lock");
    let first = lock::acquire(&path, &Progress::quiet()).await.expect("a free lock");
    let text = std::fs::read_to_string(&path).expect("the lock file");
    assert!(text.starts_with(&format!("process {} (", std::process::id())), "{text}");
    let quiet = Progress::quiet();
    let mut second = std::pin::pin!(lock::acquire(&path, &quiet));
    assert!(futures::poll!(second.as_mut()).is_pending());
    drop(first);
    second.await.expect("the lock, now free");
}
