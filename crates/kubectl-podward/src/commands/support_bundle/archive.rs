//! A compressed archive.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};

/// An archive that is being written.
pub(super) struct Archive {
    path: PathBuf,
    folder: String,
    builder: Builder<GzEncoder<File>>,
}

impl Archive {
    /// `folder` is the folder of all files in it. A file that exists is not replaced.
    pub(super) fn create(path: &Path, folder: &str) -> Result<Self> {
        let file = File::create_new(path).with_context(|| format!("create {}", path.display()))?;
        let builder = Builder::new(GzEncoder::new(file, Compression::default()));
        Ok(Self { path: path.to_owned(), folder: folder.to_owned(), builder })
    }

    pub(super) fn add(&mut self, name: &str, text: &str) -> Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(text.len().try_into().context("the size of a file")?);
        header.set_mode(0o644);
        header.set_cksum();
        let path = format!("{}/{name}", self.folder);
        let added = self.builder.append_data(&mut header, path, text.as_bytes());
        added.with_context(|| format!("write {name} to {}", self.path.display()))
    }

    pub(super) fn finish(self) -> Result<()> {
        let encoder = self.builder.into_inner();
        let written = encoder.and_then(GzEncoder::finish).and_then(|file| file.sync_all());
        written.with_context(|| format!("write {}", self.path.display()))
    }
}
