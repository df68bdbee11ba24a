//! Builds the programs of this workspace and packs them into container images, without any container tool.
//!
//! - [`ServiceImages`] builds the release images: Podward's services and the plugin of kubectl.
//! - [`DemoImages`] and [`QueueWorkerImage`] build the images of the demo, the tests and the examples.
//! - [`Image`] describes an image, [`PackedImage`] is its content in the OCI format, [`Blob`] is one part of it.
//! - [`TarWriter`] writes reproducible archives.
//! - [`build_for_images`], [`build_program`] and [`build_workspace`] run cargo.
//!
//! The images of the release are reproducible: the same sources give the same bytes on every machine.
#![forbid(unsafe_code)]

mod build;
mod cargo;
mod demo;
mod image;
mod queue_worker;
mod services;

pub use build::{
    BuildError, BuiltPrograms, build_for_images, build_program, build_workspace, build_workspace_in,
};
pub use cargo::{cargo, workspace_dir};
pub use demo::DemoImages;
pub use image::{Blob, Image, ImageError, PackedImage, TarWriter, architecture};
pub use queue_worker::QueueWorkerImage;
pub use services::ServiceImages;
