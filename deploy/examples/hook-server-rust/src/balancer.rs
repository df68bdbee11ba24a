//! A stand-in for a load balancer: this program writes its backends to one file, and it reports its state in another.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tokio::{fs, sync::Mutex};

/// The backends that the balancer must serve.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Backends {
    /// Increases with each change, so that the balancer can report which change it has applied.
    generation: u64,
    /// The backends by the UID of the pod, because names can be used again.
    backends: BTreeMap<String, Backend>,
}

/// A pod that the balancer must serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Backend {
    /// `<namespace>/<name>`, for users.
    pub(crate) pod: String,
    /// `<ip>:<port>`.
    pub(crate) address: String,
}

/// The state of the balancer.
#[derive(Debug, Deserialize)]
pub(crate) struct Report {
    /// The latest generation of the backends that it has applied.
    pub(crate) generation: u64,
    /// The number of open connections by address. A missing address has no connections.
    pub(crate) connections: BTreeMap<String, u64>,
}

/// Reads and writes the files of the balancer.
#[derive(Debug)]
pub(crate) struct Balancer {
    backends: PathBuf,
    report: PathBuf,
    /// Calls for several pods arrive at the same time, and only one may change the file.
    changing: Mutex<()>,
}

impl Balancer {
    pub(crate) fn new(backends: PathBuf, report: PathBuf) -> Self {
        Self { backends, report, changing: Mutex::default() }
    }

    /// Sets the backend of the pod `uid`, or removes it. Returns the generation that contains the change. Writes
    /// nothing if there is no change, so that a repeated question has no effect.
    pub(crate) async fn set(&self, uid: &str, backend: Option<Backend>) -> Result<u64> {
        let _one_at_a_time = self.changing.lock().await;
        let mut wanted: Backends = read(&self.backends).await?.unwrap_or_default();
        if wanted.backends.get(uid) == backend.as_ref() {
            return Ok(wanted.generation);
        }
        match backend {
            Some(backend) => wanted.backends.insert(uid.to_owned(), backend),
            None => wanted.backends.remove(uid),
        };
        wanted.generation += 1;
        // Replace the file atomically, so that a reader sees either the old or the new content.
        let new = self.backends.with_extension("new");
        fs::write(&new, serde_json::to_vec_pretty(&wanted)?).await.context("write the backends")?;
        fs::rename(&new, &self.backends).await.context("replace the backends")?;
        Ok(wanted.generation)
    }

    /// Returns the state of the balancer, or `None` if it does not report it.
    pub(crate) async fn report(&self) -> Result<Option<Report>> {
        read(&self.report).await
    }
}

/// Reads a JSON file. Returns `None` if there is no file. An invalid file is an error and does not count as empty,
/// because that would remove pods from the backends.
async fn read<T: serde::de::DeserializeOwned>(path: &PathBuf) -> Result<Option<T>> {
    match fs::read(path).await {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map(Some).with_context(|| format!("parse {}", path.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}
