use std::collections::HashMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::*;

fn image(program: &Path) -> Image {
    Image::new("podward.local/hello:7")
        .file(program, "/usr/local/bin/hello", 0o755)
        .text("/www/index.html", "good day")
        .symlink("/bin/hi", "/usr/local/bin/hello")
        .entrypoint(["/bin/hi", "--port", "80"])
        .env("LANG", "C")
        .user("65532:65532")
        .label("org.opencontainers.image.title", "hello")
}

fn program(dir: &Path) -> PathBuf {
    let path = dir.join("program");
    std::fs::write(&path, vec![7; 70_000]).expect("a file");
    path
}

/// The archive's members by name.
fn members(archive: &[u8]) -> HashMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().expect("an archive");
    entries
        .map(|entry| {
            let mut entry = entry.expect("an entry");
            let mut content = Vec::new();
            entry.read_to_end(&mut content).expect("the content");
            (entry.path().expect("a path").to_string_lossy().into_owned(), content)
        })
        .collect()
}

#[test]
fn the_same_content_gives_the_same_bytes() {
    let (one, two) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (first, second) = (program(one.path()), program(two.path()));
    // Another time and another mode of the source must not show.
    std::fs::set_permissions(&second, std::fs::Permissions::from_mode(0o600)).expect("another mode");
    let pack = |program| image(program).pack().expect("an image");
    let a = pack(&first);
    assert_eq!(a, pack(&second));
    assert_eq!(a.archive().expect("an archive"), pack(&second).archive().expect("an archive"));
    std::fs::write(&second, "other").expect("another content");
    assert_ne!(a.manifest.digest(), pack(&second).manifest.digest());
}

#[test]
fn every_digest_and_size_is_that_of_its_blob() {
    let dir = tempfile::tempdir().expect("a folder");
    let packed = image(&program(dir.path())).pack().expect("an image");
    let members = members(&packed.archive().expect("an archive"));
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().expect("a digest");
        let content = &members[&format!("blobs/{}", digest.replace(':', "/"))];
        assert_eq!(Blob::new("", content.clone()).digest(), digest);
        assert_eq!(descriptor["size"], content.len());
        content.clone()
    };
    let index: Value = serde_json::from_slice(&members["index.json"]).expect("an index");
    let entry = &index["manifests"][0];
    assert_eq!(entry["digest"], packed.manifest.digest());
    assert_eq!(entry["annotations"]["io.containerd.image.name"], "podward.local/hello:7");
    assert_eq!(entry["annotations"]["org.opencontainers.image.ref.name"], "7");
    let manifest: Value = serde_json::from_slice(&blob(entry)).expect("a manifest");
    let config: Value = serde_json::from_slice(&blob(&manifest["config"])).expect("a config");
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"][1], "--port");
    assert_eq!(config["config"]["Labels"]["org.opencontainers.image.title"], "hello");
    assert_eq!(manifest["annotations"]["org.opencontainers.image.title"], "hello");
    assert!(config.get("created").is_none() && config.get("history").is_none(), "{config}");
    assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
    blob(&manifest["layers"][0]);
}

#[test]
fn the_layer_unpacks_to_what_was_put_in() {
    let dir = tempfile::tempdir().expect("a folder");
    let layer = image(&program(dir.path())).layer().expect("a layer");
    let root = dir.path().join("root");
    let mut archive = tar::Archive::new(layer.as_slice());
    archive.set_preserve_permissions(true);
    archive.unpack(&root).expect("an unpackable layer");
    let mode = |place: &str| root.join(place).metadata().expect(place).permissions().mode() & 0o7777;
    assert_eq!(std::fs::read(root.join("usr/local/bin/hello")).expect("the program").len(), 70_000);
    assert_eq!(mode("usr/local/bin/hello"), 0o755);
    assert_eq!(mode("tmp"), 0o1777);
    assert_eq!(std::fs::read_to_string(root.join("www/index.html")).expect("the text"), "good day");
    let link = std::fs::read_link(root.join("bin/hi")).expect("the link");
    assert_eq!(link, Path::new("/usr/local/bin/hello"));
    assert!(std::fs::read_to_string(root.join("etc/passwd")).expect("passwd").contains("nonroot:x:65532"));
}

#[test]
fn writing_replaces_an_older_archive_and_reports_what_is_wrong() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("hello.tar");
    std::fs::write(&out, "old").expect("a file");
    let digest = image(&program(dir.path())).write(&out).expect("an archive");
    assert!(digest.starts_with("sha256:"));
    assert!(members(&std::fs::read(&out).expect("the archive")).contains_key("oci-layout"));

    let absent = Image::new("a:1").file("/no/such/file", "/x", 0o755).write(&out).expect_err("no such file");
    assert!(absent.to_string().contains("/no/such/file"), "{absent}");
    for place in ["relative", "/a/../b", "/a//b"] {
        let wrong = Image::new("a:1").text(place, "").write(&out).expect_err(place);
        assert!(matches!(wrong, ImageError::InvalidPath { .. }), "{wrong}");
    }
}

#[test]
fn the_sandbox_image_needs_nothing_but_busybox() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = Image::pause(&program(dir.path()));
    assert_eq!(image.name(), "podward.local/pause:1");
    let layer = members(&image.layer().expect("a layer"));
    assert!(layer.contains_key("bin/busybox"), "{:?}", layer.keys());
}
