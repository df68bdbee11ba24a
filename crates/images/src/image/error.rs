//! The errors of writing an image.

use std::path::PathBuf;

/// The reason why an image could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// A file of the image could not be read.
    #[error("image {image}: cannot read {path}; build it first")]
    Read {
        /// The name of the image.
        image: String,
        /// The file on the host.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The archive could not be written.
    #[error("image {image}: cannot write {path}")]
    Write {
        /// The name of the image.
        image: String,
        /// The path of the archive.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A path in the image is not absolute.
    #[error("image {image}: the path {path} must be absolute and must not contain `.` or `..`")]
    InvalidPath {
        /// The name of the image.
        image: String,
        /// The path in the image.
        path: String,
    },
}
