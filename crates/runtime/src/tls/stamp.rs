//! Tells one state of a file from another.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// The state of the file that `path` leads to, `None` when there is none.
    pub(crate) fn of(path: &Path) -> Option<Stamp> {
        // Follows symlinks: that is how a swapped `..data` shows.
        fs::metadata(path).ok().map(|metadata: Metadata| Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}
