//! Tests of the manifest. The schema is krew's `pkg/index/types.go`.

use serde_json::{Value, json};

use super::*;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn write(folder: &Path, architecture: &str, content: &[u8]) {
    let name = archive::file_name(architecture);
    std::fs::write(folder.join(&name), content).expect("an archive");
    let line = archive::checksum_line(content, &name);
    std::fs::write(folder.join(format!("{name}.sha256")), line).expect("a checksum");
}

fn manifest(folder: &Path) -> Result<Value> {
    let url = "https://example.com/podward/".parse()?;
    let text = Manifest::of_archives(folder, &url)?.to_yaml()?;
    Ok(serde_saphyr::from_str(&text)?)
}

fn platform(architecture: &str, sha256: &str) -> Value {
    json!({
        "selector": {"matchLabels": {"os": "linux", "arch": architecture}},
        "uri": format!("https://example.com/podward/kubectl-podward-{VERSION}-linux-{architecture}.tar.gz"),
        "sha256": sha256,
        "files": [{"from": "kubectl-podward", "to": "."}, {"from": "LICENSE", "to": "."}],
        "bin": "kubectl-podward",
    })
}

// Of "a", "b" and nothing, from `sha256sum`.
const SHA_A: &str = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
const SHA_B: &str = "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d";
const SHA_EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[test]
fn each_archive_of_this_version_is_a_platform() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "arm64", b"a");
    let other_version = "kubectl-podward-99.0.0-linux-amd64.tar.gz";
    std::fs::write(folder.path().join(other_version), "old").expect("an archive");
    let mut one = manifest(folder.path()).expect("a manifest");
    let spec = one["spec"].as_object_mut().expect("a spec");
    let description = spec.remove("description").expect("a description");
    assert!(description.as_str().is_some_and(|text| text.lines().count() > 1), "{description}");
    let short = spec.remove("shortDescription").expect("a short description");
    assert!(short.as_str().is_some_and(|text| text.len() <= 50 && text.lines().count() == 1), "{short}");
    assert_eq!(
        one,
        json!({
            "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
            "kind": "Plugin",
            "metadata": {"name": "podward"},
            "spec": {"version": format!("v{VERSION}"), "platforms": [platform("arm64", SHA_A)]},
        })
    );

    write(folder.path(), "amd64", b"b");
    let both = manifest(folder.path()).expect("a manifest");
    assert_eq!(both["spec"]["platforms"], json!([platform("amd64", SHA_B), platform("arm64", SHA_A)]));

    write(folder.path(), "arm64", b"");
    let newer = manifest(folder.path()).expect("a manifest");
    assert_eq!(newer["spec"]["platforms"], json!([platform("amd64", SHA_B), platform("arm64", SHA_EMPTY)]));
}

#[test]
fn a_folder_without_archives_or_with_a_broken_one_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = manifest(folder.path()).expect_err("no archive").to_string();
    assert!(error.contains("has no archive of this version"), "{error}");

    write(folder.path(), "arm64", b"a");
    std::fs::write(folder.path().join(archive::file_name("arm64")), "half").expect("an archive");
    let error = manifest(folder.path()).expect_err("another archive").to_string();
    assert!(error.contains("linux-arm64.tar.gz is not the file of"), "{error}");
}

#[test]
fn a_url_is_one_of_a_folder_to_download_from() {
    for right in ["https://example.com/podward", "http://127.0.0.1:8080", "http://127.0.0.1:8080/"] {
        let url: BaseUrl = right.parse().expect(right);
        assert_eq!(url.0, right.trim_end_matches('/'));
    }
    for wrong in ["", "example.com", "/files", "ftp://example.com", "https://a/?x=", "https://a/#x"] {
        wrong.parse::<BaseUrl>().expect_err(wrong);
    }
}
