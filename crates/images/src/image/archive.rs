//! Reproducible tar archives: the same entries give the same bytes.

/// Writes a tar archive in memory. Its headers contain no times and no owners.
pub(super) struct TarWriter(tar::Builder<Vec<u8>>);

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

    pub(super) fn folder(&mut self, path: &str, mode: u32) -> std::io::Result<()> {
        let mut header = Self::header(tar::EntryType::Directory, mode, 0);
        self.0.append_data(&mut header, format!("{path}/"), std::io::empty())
    }

    pub(super) fn file(&mut self, path: &str, content: &[u8], mode: u32) -> std::io::Result<()> {
        let mut header = Self::header(tar::EntryType::Regular, mode, content.len() as u64);
        self.0.append_data(&mut header, path, content)
    }

    pub(super) fn symlink(&mut self, path: &str, target: &str) -> std::io::Result<()> {
        let mut header = Self::header(tar::EntryType::Symlink, 0o777, 0);
        self.0.append_link(&mut header, path, target)
    }

    pub(super) fn finish(self) -> std::io::Result<Vec<u8>> {
        self.0.into_inner()
    }
}
