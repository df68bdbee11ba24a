//! Tells one version of a file from another.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl FileVersion {
    /// Returns the version of the file that `path` leads to; `None` if there is no such file.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        // Follows symlinks: the kubelet updates a mounted Secret by swapping the symlink `..data`.
        fs::metadata(path).ok().map(|metadata: Metadata| Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}
