//! Checks the style of `proto/`, and that the interface stays compatible.
// The helpers of tests may panic, as tests may.
#![allow(clippy::expect_used)]

mod comments;
mod names;
mod surface;

use podward_proto::FILE_DESCRIPTOR_SET;
use prost::Message;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet};

/// The files of Podward's packages, with their comments.
fn files() -> Vec<FileDescriptorProto> {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("decode the descriptors of the crate");
    let ours = |file: &FileDescriptorProto| file.package().starts_with("podward.");
    let files: Vec<_> = set.file.into_iter().filter(ours).collect();
    assert!(!files.is_empty(), "the descriptors contain no file of Podward");
    files
}

/// All messages of Podward's packages with their full names, without the map entries that the compiler adds.
fn messages() -> Vec<(String, DescriptorProto)> {
    let mut found = Vec::new();
    let mut open: Vec<(String, DescriptorProto)> = files()
        .into_iter()
        .flat_map(|file| {
            let package = file.package().to_owned();
            file.message_type.into_iter().map(move |message| (package.clone(), message))
        })
        .collect();
    while let Some((scope, message)) = open.pop() {
        let name = format!("{scope}.{}", message.name());
        let is_entry = |message: &DescriptorProto| message.options.as_ref().is_some_and(|o| o.map_entry());
        let nested = message.nested_type.iter().filter(|message| !is_entry(message));
        open.extend(nested.map(|message| (name.clone(), message.clone())));
        found.push((name, message));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// All enums of Podward's packages with their full names.
fn enums() -> Vec<(String, EnumDescriptorProto)> {
    let named = |scope: &str, all: &[EnumDescriptorProto]| -> Vec<_> {
        all.iter().map(|one| (format!("{scope}.{}", one.name()), one.clone())).collect()
    };
    let of_files = files().into_iter().flat_map(|file| named(file.package(), &file.enum_type));
    let of_messages = messages().into_iter().flat_map(|(name, message)| named(&name, &message.enum_type));
    let mut found: Vec<_> = of_files.chain(of_messages).collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Panics with all findings if there are any.
fn none(findings: Vec<String>, rule: &str) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}
