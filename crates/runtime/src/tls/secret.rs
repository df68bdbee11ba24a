//! A Secret of the API server, kept as files.
//!
//! A mounted Secret would do the same, but the kubelet brings a change only after up to a minute and a half, which is long for a
//! certificate that is to be replaced now; and a pod that mounts a Secret which is still to be made doesn't start.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

/// What is kept of it.
const FILES: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];
/// Leads to the folder of the version that counts.
const CURRENT: &str = "..data";

/// Keeps the files `tls.crt`, `tls.key` and `ca.crt` of `folder` as the Secret `name` has them, until `stop`. Returns once they are
/// there: if there is no such Secret yet, that is when there is one.
///
/// All files change at the same moment, as those of a mounted Secret do. A Secret that lacks one of them changes nothing, nor does
/// one that is deleted.
///
/// # Errors
///
/// When the folder can't be written to, or `stop` comes first.
pub async fn keep_as_files(
    client: Client,
    namespace: &str,
    name: &str,
    folder: &Path,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let api: Api<Secret> = Api::namespaced(client, namespace);
    let mut kept = Kept { name: format!("{namespace}/{name}"), folder: folder.to_owned(), last: None };
    let mut changes = Box::pin(watcher::watch_object(api, name).default_backoff());
    loop {
        match stop.run_until_cancelled(changes.next()).await.flatten() {
            Some(found) => {
                if kept.take(found)? {
                    break;
                }
            }
            None => bail!("stopped while waiting for Secret {}", kept.name),
        }
    }
    tokio::spawn(async move {
        while let Some(found) = stop.run_until_cancelled(changes.next()).await.flatten() {
            if let Err(error) = kept.take(found) {
                tracing::error!("the files stay as they are: {error:#}");
            }
        }
    });
    Ok(())
}

struct Kept {
    name: String,
    folder: PathBuf,
    last: Option<[Vec<u8>; 3]>,
}

impl Kept {
    /// Gives whether the files are there.
    fn take(&mut self, found: Result<Option<Secret>, watcher::Error>) -> anyhow::Result<bool> {
        let name = &self.name;
        let secret = match found {
            Ok(Some(secret)) => secret,
            Ok(None) => {
                tracing::warn!(
                    "there is no Secret {name}; waiting for it to be made, by the lifecycle-controller (--certificates) or cert-manager"
                );
                return Ok(self.last.is_some());
            }
            Err(error) => {
                tracing::warn!("could not read Secret {name}, tried again: {error}");
                return Ok(self.last.is_some());
            }
        };
        let mut data = secret.data.unwrap_or_default();
        let mut missing = Vec::new();
        let contents = FILES.map(|file| {
            let ByteString(content) = data.remove(file).unwrap_or_default();
            if content.is_empty() {
                missing.push(file);
            }
            content
        });
        if !missing.is_empty() {
            tracing::warn!("Secret {name} lacks {}; waiting for it", missing.join(", "));
        } else if self.last.as_ref() != Some(&contents) {
            write(&self.folder, &contents)
                .with_context(|| format!("write Secret {name} to {}", self.folder.display()))?;
            self.last = Some(contents);
        }
        Ok(self.last.is_some())
    }
}

/// In the way of the kubelet: a new folder for the new version, to which the link `..data` is then turned.
fn write(folder: &Path, contents: &[Vec<u8>; 3]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let version = format!("..{:016x}", fastrand::u64(..));
    let path = folder.join(&version);
    DirBuilder::new().mode(0o700).create(&path)?;
    for (file, content) in FILES.iter().zip(contents) {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path.join(file))?;
        file.write_all(content)?;
    }
    let turned = folder.join(format!("{version}.link"));
    symlink(&version, &turned)?;
    fs::rename(&turned, folder.join(CURRENT))?;
    for file in FILES {
        let link = folder.join(file);
        match symlink(Path::new(CURRENT).join(file), &link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_old =
            name.to_str().is_some_and(|name| name.starts_with("..") && name != CURRENT && name != version);
        if is_old {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    fn secret(certificate: &str, key: &str) -> Secret {
        let authority = ByteString(b"authority".to_vec());
        let [certificate, key] = [certificate, key].map(|text| ByteString(text.as_bytes().to_vec()));
        let data = json!({"tls.crt": certificate, "tls.key": key, "ca.crt": authority});
        serde_json::from_value(json!({"metadata": {}, "data": data})).unwrap()
    }

    #[test]
    fn all_files_change_at_once_and_only_for_better_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tls");
        let mut kept = Kept { name: "ns/a".to_owned(), folder: path.clone(), last: None };
        assert!(!kept.take(Ok(None)).unwrap());
        assert!(!kept.take(Ok(Some(secret("one", "")))).unwrap(), "half a Secret");
        assert!(!path.exists());
        let content = |file: &str| fs::read_to_string(path.join(file)).unwrap();
        for (certificate, key) in [("one", "first"), ("two", "second")] {
            assert!(kept.take(Ok(Some(secret(certificate, key)))).unwrap());
            assert_eq!(
                [content("tls.crt"), content("tls.key"), content("ca.crt")],
                [certificate, key, "authority"]
            );
        }
        let mode = |file: &str| fs::metadata(path.join(file)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("tls.key"), 0o600);
        let version = fs::read_link(path.join(CURRENT)).unwrap();
        for nothing in [None, Some(secret("", "")), Some(secret("two", "second"))] {
            assert!(kept.take(Ok(nothing)).unwrap());
        }
        assert_eq!(fs::read_link(path.join(CURRENT)).unwrap(), version, "nothing was written");
        let entries = fs::read_dir(&path).unwrap().count();
        assert_eq!(entries, FILES.len() + 2, "only the last version is kept");
    }
}
