//! The page of the gRPC interface: a section for each file, with its services, messages and enums.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    MethodDescriptorProto, ServiceDescriptorProto,
};

use super::markdown::{cell, code, paragraphs};

const HEAD: &str = "# gRPC interface\n\n\
    <!-- Written by `cargo xtask reference` from the files in proto. Changes belong there. -->\n\n\
    [The gRPC interface](../guides/grpc.md) shows how to use it.\n";

// Numbers of fields in descriptor.proto. The path of a comment consists of them.
const FILE_MESSAGE: i32 = 4;
const FILE_ENUM: i32 = 5;
const FILE_SERVICE: i32 = 6;
const FILE_SYNTAX: i32 = 12;
const MESSAGE_FIELD: i32 = 2;
const ENUM_VALUE: i32 = 2;
const SERVICE_METHOD: i32 = 2;

/// Returns the page that describes Podward's files in an encoded descriptor set.
///
/// # Errors
/// If `descriptors` cannot be decoded.
pub(super) fn page(descriptors: &[u8]) -> Result<String> {
    let set = FileDescriptorSet::decode(descriptors).context("cannot decode a descriptor set")?;
    let mut page = HEAD.to_owned();
    for file in set.file.iter().filter(|file| file.package().starts_with("podward.")) {
        page.push_str(&Section::new(file).text());
    }
    Ok(page)
}

/// One proto file, with its comments by path.
struct Section<'a> {
    file: &'a FileDescriptorProto,
    comments: BTreeMap<&'a [i32], &'a str>,
}

impl<'a> Section<'a> {
    fn new(file: &'a FileDescriptorProto) -> Self {
        let locations = file.source_code_info.iter().flat_map(|info| &info.location);
        let comments =
            locations.map(|location| (location.path.as_slice(), location.leading_comments().trim()));
        Self { file, comments: comments.filter(|(_, comment)| !comment.is_empty()).collect() }
    }

    fn comment(&self, path: &[i32]) -> &'a str {
        self.comments.get(path).copied().unwrap_or_default()
    }

    fn text(&self) -> String {
        let intro = paragraphs(self.comment(&[FILE_SYNTAX]));
        let mut text = format!("\n## {}\n\n{intro}\n", self.file.name());
        for (index, service) in (0..).zip(&self.file.service) {
            text.push_str(&self.service(index, service));
        }
        for (index, message) in (0..).zip(&self.file.message_type) {
            text.push_str(&self.message(index, message));
        }
        for (index, one) in (0..).zip(&self.file.enum_type) {
            text.push_str(&self.values(index, one));
        }
        text
    }

    fn service(&self, index: i32, service: &ServiceDescriptorProto) -> String {
        let comment = paragraphs(self.comment(&[FILE_SERVICE, index]));
        let mut text = format!("\n### {}\n\nService. {comment}\n", service.name());
        for (number, method) in (0..).zip(&service.method) {
            let comment = paragraphs(self.comment(&[FILE_SERVICE, index, SERVICE_METHOD, number]));
            text.push_str(&format!(
                "\n- **{}**({}) returns ({})\n\n",
                method.name(),
                input(method),
                output(method)
            ));
            for line in comment.lines() {
                text.push_str(if line.is_empty() { "" } else { "  " });
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }

    fn message(&self, index: i32, message: &DescriptorProto) -> String {
        let comment = paragraphs(self.comment(&[FILE_MESSAGE, index]));
        let mut text = format!("\n### {}\n\n{comment}\n", message.name());
        if message.field.is_empty() {
            return text;
        }
        text.push_str("\n| field | type | description |\n|---|---|---|\n");
        for (number, field) in (0..).zip(&message.field) {
            let comment = cell(self.comment(&[FILE_MESSAGE, index, MESSAGE_FIELD, number]));
            let row = format!("| {} | {} | {comment} |\n", code(field.name()), kind(message, field));
            text.push_str(&row);
        }
        text
    }

    fn values(&self, index: i32, one: &EnumDescriptorProto) -> String {
        let comment = paragraphs(self.comment(&[FILE_ENUM, index]));
        let mut text = format!("\n### {}\n\n{comment}\n\n| value | description |\n|---|---|\n", one.name());
        for (number, value) in (0..).zip(&one.value) {
            let comment = cell(self.comment(&[FILE_ENUM, index, ENUM_VALUE, number]));
            text.push_str(&format!("| {} | {comment} |\n", code(value.name())));
        }
        text
    }
}

fn input(method: &MethodDescriptorProto) -> String {
    let stream = if method.client_streaming() { "stream of " } else { "" };
    format!("{stream}{}", link(method.input_type()))
}

fn output(method: &MethodDescriptorProto) -> String {
    let stream = if method.server_streaming() { "stream of " } else { "" };
    format!("{stream}{}", link(method.output_type()))
}

/// Returns the type of a field as in a proto file, with a link to a type of Podward's.
fn kind(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    if let Some(entry) = map_entry(message, field) {
        let types: Vec<String> = entry.field.iter().map(|field| kind(entry, field)).collect();
        return format!("map of {}", types.join(" to "));
    }
    let name = match field.r#type() {
        Type::Message | Type::Enum => link(field.type_name()),
        scalar => code(&scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase()),
    };
    let oneof = field.oneof_index.and_then(|index| message.oneof_decl.get(usize::try_from(index).ok()?));
    match (field.label(), oneof) {
        (Label::Repeated, _) => format!("repeated {name}"),
        (_, _) if field.proto3_optional() => format!("optional {name}"),
        (_, Some(oneof)) => format!("{name}, one of {}", code(oneof.name())),
        _ => name,
    }
}

fn map_entry<'a>(message: &'a DescriptorProto, field: &FieldDescriptorProto) -> Option<&'a DescriptorProto> {
    let name = field.type_name().rsplit('.').next()?;
    let is_entry =
        |nested: &&DescriptorProto| nested.options.as_ref().is_some_and(|options| options.map_entry());
    message.nested_type.iter().filter(is_entry).find(|nested| nested.name() == name)
}

/// Returns a link to a type of Podward's, or the name of any other.
fn link(name: &str) -> String {
    match name.strip_prefix(".podward.v1.") {
        Some(own) => format!("[{own}](#{})", own.to_lowercase()),
        None => code(name.trim_start_matches('.')),
    }
}
