//! Reproducible tar archives: the same entries give the same bytes.

/// Writes a tar archive in memory. Its headers contain no times and no owners.
pub struct TarWriter(tar::Builder<Vec<u8>>);

impl Default for TarWriter {
    fn default() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }
}

impl TarWriter {
    fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header
    }

    /// Adds the folder `path`.
    ///
    /// # Errors
    /// Fails if a tar file cannot contain the path.
    pub fn folder(&mut self, path: &str, mode: u32) -> std::io::Result<()> {
        let mut header = Self::header(tar::EntryType::Directory, mode, 0);
        self.0.append_data(&mut header, format!("{path}/"), std::io::empty())
    }

    /// Adds a file with `content` at `path`.
    ///
    /// # Errors
    /// Fails if a tar file cannot contain the path.
    pub fn file(&mut self, path: &str, content: &[u8], mode: u32) -> std::io::Result<()> {
        let mut header = Self::header(tar::EntryType::Regular, mode, content.len() as u64);
        self.0.append_data(&mut header, path, content)
    }

    /// Adds a symbolic link to `target` at `path`.
    ///
    /// # Errors
    /// Fails if a tar file cannot contain the path or the target.
    pub fn symlink(&mut self, path: &str, target: &str) -> std::io::Result<()> {
        let mut header = Self::header(tar::EntryType::Symlink, 0o777, 0);
        self.0.append_link(&mut header, path, target)
    }

    /// Returns the bytes of the archive.
    ///
    /// # Errors
    /// Never in practice: the archive is in memory.
    pub fn finish(self) -> std::io::Result<Vec<u8>> {
        self.0.into_inner()
    }
}
