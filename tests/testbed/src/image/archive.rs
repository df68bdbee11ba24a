//! Tar archives that are the same whenever and by whomever they are written.

/// A tar in memory, with headers that don't depend on when and by whom it is written.
pub(super) struct Tar(tar::Builder<Vec<u8>>);

impl Default for Tar {
    fn default() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }
}

impl Tar {
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

    pub(super) fn folder(&mut self, place: &str, mode: u32) -> std::io::Result<()> {
        let mut header = Self::header(tar::EntryType::Directory, mode, 0);
        self.0.append_data(&mut header, format!("{place}/"), std::io::empty())
    }

    pub(super) fn file(&mut self, place: &str, content: &[u8], mode: u32) -> std::io::Result<()> {
        let mut header = Self::header(tar::EntryType::Regular, mode, content.len() as u64);
        self.0.append_data(&mut header, place, content)
    }

    pub(super) fn symlink(&mut self, place: &str, target: &str) -> std::io::Result<()> {
        let mut header = Self::header(tar::EntryType::Symlink, 0o777, 0);
        self.0.append_link(&mut header, place, target)
    }

    pub(super) fn finish(self) -> std::io::Result<Vec<u8>> {
        self.0.into_inner()
    }
}
