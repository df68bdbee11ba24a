//! Every element of the interface has a comment.

use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto};

use super::{files, none};

// Field numbers of descriptor.proto. The path of a location consists of them.
const FILE_MESSAGE: i32 = 4;
const FILE_ENUM: i32 = 5;
const FILE_SERVICE: i32 = 6;
const FILE_SYNTAX: i32 = 12;
const MESSAGE_FIELD: i32 = 2;
const MESSAGE_NESTED: i32 = 3;
const MESSAGE_ENUM: i32 = 4;
const MESSAGE_ONEOF: i32 = 8;
const ENUM_VALUE: i32 = 2;
const SERVICE_METHOD: i32 = 2;

#[test]
fn everything_has_a_comment() {
    let mut findings = Vec::new();
    for file in files() {
        let commented: Vec<&[i32]> = file
            .source_code_info
            .iter()
            .flat_map(|info| &info.location)
            .filter(|location| !location.leading_comments().trim().is_empty())
            .map(|location| location.path.as_slice())
            .collect();
        let all = described(&file);
        let bare = all.into_iter().filter(|(path, _)| !commented.contains(&path.as_slice()));
        findings.extend(bare.map(|(_, what)| format!("{}: {what}", file.name())));
    }
    none(findings, "these have no comment");
}

#[test]
fn comments_are_sentences() {
    let mut findings = Vec::new();
    for file in files() {
        for location in file.source_code_info.iter().flat_map(|info| &info.location) {
            let comment = location.leading_comments().trim();
            if !comment.is_empty() && !comment.ends_with(['.', '?', ':']) {
                findings.push(format!("{}: {comment:?}", file.name()));
            }
        }
    }
    none(findings, "these comments do not end with a full stop, a question mark or a colon");
}

/// The paths of all elements that need a comment, with names for messages.
fn described(file: &FileDescriptorProto) -> Vec<(Vec<i32>, String)> {
    let mut all = vec![(vec![FILE_SYNTAX], "the file itself, above `syntax`".to_owned())];
    for (index, message) in (0..).zip(&file.message_type) {
        of_message(&[FILE_MESSAGE, index], "", message, &mut all);
    }
    for (index, one) in (0..).zip(&file.enum_type) {
        of_enum(&[FILE_ENUM, index], "", one, &mut all);
    }
    for (index, service) in (0..).zip(&file.service) {
        all.push((vec![FILE_SERVICE, index], format!("service {}", service.name())));
        for (number, method) in (0..).zip(&service.method) {
            let path = vec![FILE_SERVICE, index, SERVICE_METHOD, number];
            all.push((path, format!("rpc {}.{}", service.name(), method.name())));
        }
    }
    all
}

fn of_message(path: &[i32], scope: &str, message: &DescriptorProto, all: &mut Vec<(Vec<i32>, String)>) {
    if message.options.as_ref().is_some_and(|options| options.map_entry()) {
        return;
    }
    let name = format!("{scope}{}", message.name());
    all.push((path.to_vec(), format!("message {name}")));
    let below = |kind, index| [path, &[kind, index]].concat();
    for (index, field) in (0..).zip(&message.field) {
        all.push((below(MESSAGE_FIELD, index), format!("field {name}.{}", field.name())));
    }
    for (index, oneof) in (0..).zip(&message.oneof_decl) {
        // The compiler adds one for each `optional` field.
        if !oneof.name().starts_with('_') {
            all.push((below(MESSAGE_ONEOF, index), format!("oneof {name}.{}", oneof.name())));
        }
    }
    let scope = format!("{name}.");
    for (index, nested) in (0..).zip(&message.nested_type) {
        of_message(&below(MESSAGE_NESTED, index), &scope, nested, all);
    }
    for (index, one) in (0..).zip(&message.enum_type) {
        of_enum(&below(MESSAGE_ENUM, index), &scope, one, all);
    }
}

fn of_enum(path: &[i32], scope: &str, one: &EnumDescriptorProto, all: &mut Vec<(Vec<i32>, String)>) {
    let name = format!("{scope}{}", one.name());
    all.push((path.to_vec(), format!("enum {name}")));
    for (index, value) in (0..).zip(&one.value) {
        all.push(([path, &[ENUM_VALUE, index]].concat(), format!("value {}", value.name())));
    }
}
