//! A stand-in for a load balancer: one file says what it is to serve, another, written by the balancer, what it does.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tokio::{fs, sync::Mutex};

/// What the balancer is to serve.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Backends {
    /// One more with each change, so that the balancer can say which of them it has taken in.
    generation: u64,
    /// By the pod's UID: names are used again, UIDs are not.
    backends: BTreeMap<String, Backend>,
}

/// A pod that the balancer serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Backend {
    /// `<namespace>/<name>`, for people.
    pub(crate) pod: String,
    /// `<ip>:<port>`.
    pub(crate) address: String,
}

/// What the balancer does.
#[derive(Debug, Deserialize)]
pub(crate) struct Report {
    /// The latest generation of the backends that it has taken in.
    pub(crate) generation: u64,
    /// Open connections by address; none where an address is missing.
    pub(crate) connections: BTreeMap<String, u64>,
}

/// The balancer.
#[derive(Debug)]
pub(crate) struct Balancer {
    backends: PathBuf,
    report: PathBuf,
    /// Calls for several pods come at the same time; the file is changed by one at a time.
    changing: Mutex<()>,
}

impl Balancer {
    pub(crate) fn new(backends: PathBuf, report: PathBuf) -> Self {
        Self { backends, report, changing: Mutex::default() }
    }

    /// Has the pod `uid` served at `backend`, or not at all, and gives the generation that says so. Nothing is written when it is
    /// so already, so that being asked twice changes nothing.
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
        // A reader sees the old file or the new one, never half of one.
        let new = self.backends.with_extension("new");
        fs::write(&new, serde_json::to_vec_pretty(&wanted)?).await.context("write the backends")?;
        fs::rename(&new, &self.backends).await.context("put the new backends into place")?;
        Ok(wanted.generation)
    }

    /// What the balancer does, if it says so.
    pub(crate) async fn report(&self) -> Result<Option<Report>> {
        read(&self.report).await
    }
}

/// Reads a JSON file. One that can't be read is an error, never an empty one: pods must not be forgotten because of it.
async fn read<T: serde::de::DeserializeOwned>(path: &PathBuf) -> Result<Option<T>> {
    match fs::read(path).await {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map(Some).with_context(|| format!("understand {}", path.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}
