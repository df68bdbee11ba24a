//! Checks that the interface only grows, because clients have compiled it in: nothing may be removed or changed.
//!
//! `proto/podward/v1/fields.txt` lists every field, value and rpc, one per line. After an addition, write it again:
//!
//! ```sh
//! PODWARD_WRITE_FIELDS=1 cargo test -p podward-proto --test lint
//! ```
//!
//! The command refuses to remove a line. To remove an element, reserve its number and delete its line by hand, so that
//! the removal shows in the diff.

use std::{collections::BTreeSet, path::PathBuf};

use prost_types::{
    FieldDescriptorProto,
    field_descriptor_proto::{Label, Type},
};

use super::{enums, files, messages};

const WRITE: &str = "PODWARD_WRITE_FIELDS";

#[test]
fn the_interface_only_grows() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../proto/podward/v1/fields.txt");
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    let stored: BTreeSet<String> = stored.lines().map(str::to_owned).collect();
    let present = present();
    let lost: Vec<&str> = stored.difference(&present).map(String::as_str).collect();
    assert!(
        lost.is_empty(),
        "these lines of fields.txt must not be removed or changed (see tests/lint/surface.rs):\n  {}",
        lost.join("\n  ")
    );
    let new: Vec<&str> = present.difference(&stored).map(String::as_str).collect();
    if std::env::var_os(WRITE).is_some() {
        let text: String = present.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, text).expect("write proto/podward/v1/fields.txt");
    } else {
        assert!(
            new.is_empty(),
            "these are new; to add them to fields.txt, run the test with {WRITE}=1:\n  {}",
            new.join("\n  ")
        );
    }
}

/// A change of a name, a type or a cardinality changes a line.
#[test]
fn lines_contain_names_types_and_cardinalities() {
    let present = present();
    for line in [
        "podward.v1.HandleRequest 0003 pod .podward.v1.Pod",
        "podward.v1.Hook 0004 phases repeated .podward.v1.Phase",
        "podward.v1.Hook 0006 endpoint oneof connection .podward.v1.Endpoint",
        "podward.v1.DeletionRequest 0004 grace_period_seconds optional uint32",
        "podward.v1.Outcome 0001 OUTCOME_DONE",
        "podward.v1.HookHandler.Handle .podward.v1.HandleRequest -> .podward.v1.HandleResponse",
        "podward.v1.HookRegistry.Attach stream .podward.v1.AttachRequest -> stream .podward.v1.AttachResponse",
    ] {
        assert!(present.contains(line), "no line {line:?} in:\n{present:#?}");
    }
}

fn present() -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for (message, descriptor) in messages() {
        for field in &descriptor.field {
            let oneof = usize::try_from(field.oneof_index.unwrap_or(-1)).ok();
            let oneof = oneof.and_then(|index| descriptor.oneof_decl.get(index)).map(|oneof| oneof.name());
            lines.insert(format!("{message} {:04} {} {}", field.number(), field.name(), shape(field, oneof)));
        }
    }
    for (name, one) in enums() {
        lines.extend(one.value.iter().map(|value| format!("{name} {:04} {}", value.number(), value.name())));
    }
    for file in files() {
        for service in &file.service {
            for method in &service.method {
                let stream = |is: bool| if is { "stream " } else { "" };
                lines.insert(format!(
                    "{}.{}.{} {}{} -> {}{}",
                    file.package(),
                    service.name(),
                    method.name(),
                    stream(method.client_streaming()),
                    method.input_type(),
                    stream(method.server_streaming()),
                    method.output_type()
                ));
            }
        }
    }
    lines
}

fn shape(field: &FieldDescriptorProto, oneof: Option<&str>) -> String {
    let of = match field.r#type() {
        Type::Message | Type::Enum => field.type_name().to_owned(),
        plain => format!("{plain:?}").to_lowercase(),
    };
    match (field.label(), oneof) {
        (Label::Repeated, _) => format!("repeated {of}"),
        _ if field.proto3_optional() => format!("optional {of}"),
        (_, Some(oneof)) => format!("oneof {oneof} {of}"),
        _ => of,
    }
}
