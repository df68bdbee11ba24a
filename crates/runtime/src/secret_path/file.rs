//! A file with the accepted secrets, for processes without access to the Secret.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use podward_core::webhook_path::{InvalidPathSecret, PathSecret};

use crate::tls::FileVersion;

/// The file is compared at most once in this time.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A file has the next and the previous secret beside the current one. More lines would only make guesses easier.
const MAX_SECRETS: usize = 3;

/// The file with the accepted secrets can't be used. No error contains a secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// It can't be read.
    #[error("could not read the file of --webhook-path-file, {path:?}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// It has no secret, or too many.
    #[error(
        "the file of --webhook-path-file, {path:?}, must have one to {MAX_SECRETS} lines, and has {lines}"
    )]
    Lines {
        /// The file.
        path: PathBuf,
        /// The number of lines that are not empty.
        lines: usize,
    },
    /// A line is not a secret.
    #[error("the file of --webhook-path-file, {path:?}, has a line that can't be used: {source}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The form that a secret must have.
        source: InvalidPathSecret,
    },
}

/// A file with one to three secrets, one for each line.
pub(super) struct SecretFile {
    path: PathBuf,
    first: Arc<[PathSecret]>,
    state: Mutex<FileState>,
}

struct FileState {
    version: Option<FileVersion>,
    looked: Instant,
}

impl SecretFile {
    /// Reads the file.
    pub(super) fn open(path: &Path) -> Result<Self, SecretFileError> {
        // Taken before reading: the next look then finds a change in between.
        let version = FileVersion::of(path);
        let first = read(path)?;
        let state = Mutex::new(FileState { version, looked: Instant::now() });
        Ok(Self { path: path.to_owned(), first, state })
    }

    pub(super) fn first(&self) -> Arc<[PathSecret]> {
        Arc::clone(&self.first)
    }

    /// Returns the secrets if the file has changed. A file that can't be used is logged, and changes nothing.
    pub(super) fn look(&self) -> Option<Arc<[PathSecret]>> {
        let mut state = self.state.lock();
        if state.looked.elapsed() < LOOK_INTERVAL {
            return None;
        }
        state.looked = Instant::now();
        let version = FileVersion::of(&self.path);
        if version == state.version {
            return None;
        }
        state.version = version;
        match read(&self.path) {
            Ok(secrets) => {
                tracing::info!("the secrets of --webhook-path-file have changed");
                Some(secrets)
            }
            Err(error) => {
                tracing::error!("the secrets stay as they are: {error}");
                None
            }
        }
    }
}

fn read(path: &Path) -> Result<Arc<[PathSecret]>, SecretFileError> {
    let text =
        fs::read_to_string(path).map_err(|source| SecretFileError::Read { path: path.to_owned(), source })?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() || lines.len() > MAX_SECRETS {
        return Err(SecretFileError::Lines { path: path.to_owned(), lines: lines.len() });
    }
    let secrets: Result<Vec<_>, _> = lines.into_iter().map(PathSecret::parse).collect();
    let secrets = secrets.map_err(|source| SecretFileError::Line { path: path.to_owned(), source })?;
    Ok(secrets.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_usable_secret_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let opened = |text: &str| {
            fs::write(&path, text).unwrap();
            SecretFile::open(&path).map(|file| file.first().len()).map_err(|error| error.to_string())
        };
        let good = "0a".repeat(32);
        assert_eq!(opened(&format!("{good}\n")), Ok(1));
        assert_eq!(opened(&format!("\n{good}\n{}\n", "0b".repeat(32))), Ok(2));
        assert!(opened("").unwrap_err().contains("has 0"));
        assert!(opened(&format!("{good}\n").repeat(4)).unwrap_err().contains("has 4"));
        let error = opened("password").unwrap_err();
        assert!(error.contains("64 lower-case hexadecimal digits") && !error.contains("password"), "{error}");
        let missing = SecretFile::open(&folder.path().join("missing")).err().unwrap();
        assert!(missing.to_string().contains("could not read"), "{missing}");
    }

    #[test]
    fn a_changed_file_is_read_again_and_a_bad_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "0a".repeat(32)).unwrap();
        let file = SecretFile::open(&path).unwrap();
        assert!(file.look().is_none());
        let look_later = || {
            if let Some(earlier) = Instant::now().checked_sub(2 * LOOK_INTERVAL) {
                file.state.lock().looked = earlier;
            }
            file.look()
        };
        fs::write(&path, "no secret").unwrap();
        assert!(look_later().is_none());
        fs::write(&path, format!("{}\n", "0b".repeat(32))).unwrap();
        assert_eq!(look_later().unwrap()[0].reveal(), "0b".repeat(32));
        assert!(look_later().is_none());
    }
}
