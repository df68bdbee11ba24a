//! Rules for names, numbers and types.

use std::collections::{BTreeMap, BTreeSet};

use prost_types::field_descriptor_proto::Type;

use super::{enums, files, messages, none};

#[test]
fn packages_are_their_folders() {
    let wrong = files().into_iter().filter_map(|file| {
        let folder = file.name().rsplit_once('/').map_or("", |(folder, _)| folder).replace('/', ".");
        (folder != file.package()).then(|| format!("{} has the package {}", file.name(), file.package()))
    });
    none(wrong.collect(), "the package of a file must match its folder");
}

/// Without it, `protoc-gen-go` stops.
#[test]
fn files_have_a_package_of_go() {
    let path = "podward.io/podward/v1;podwardv1";
    let is_named = |file: &prost_types::FileDescriptorProto| {
        file.options.as_ref().is_some_and(|options| options.go_package() == path)
    };
    let wrong = files().into_iter().filter(|file| !is_named(file));
    none(
        wrong.map(|file| file.name().to_owned()).collect(),
        "the option go_package is missing or another one",
    );
}

#[test]
fn the_syntax_is_proto3() {
    let wrong = files().into_iter().filter(|file| file.syntax() != "proto3");
    none(wrong.map(|file| file.name().to_owned()).collect(), "not proto3");
}

#[test]
fn messages_enums_and_services_are_upper_camel() {
    let messages = messages().into_iter().map(|(name, _)| name);
    let enums = enums().into_iter().map(|(name, _)| name);
    let services = files().into_iter().flat_map(|file| {
        let of = |service: &prost_types::ServiceDescriptorProto| {
            let methods = service.method.iter().map(|method| method.name().to_owned());
            methods.chain([service.name().to_owned()]).collect::<Vec<_>>()
        };
        file.service.iter().flat_map(of).collect::<Vec<_>>()
    });
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let wrong = messages.chain(enums).chain(services).filter(|name| {
        let last = last(name);
        !last.starts_with(|c: char| c.is_ascii_uppercase())
            || !last.chars().all(|c| c.is_ascii_alphanumeric())
    });
    none(wrong.collect(), "not UpperCamelCase");
}

#[test]
fn fields_are_lower_snake() {
    let mut findings = Vec::new();
    for (message, descriptor) in messages() {
        let oneofs = descriptor.oneof_decl.iter().map(|oneof| oneof.name().trim_start_matches('_'));
        for name in descriptor.field.iter().map(|field| field.name()).chain(oneofs) {
            let is_legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            let is_snake = name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.chars().all(is_legal)
                && !name.contains("__")
                && !name.ends_with('_');
            if !is_snake {
                findings.push(format!("{message}.{name}"));
            }
        }
    }
    none(findings, "not lower_snake_case");
}

#[test]
fn enum_values_are_prefixed_and_zero_is_unspecified() {
    let mut findings = Vec::new();
    for (name, one) in enums() {
        let prefix = format!("{}_", upper_snake(one.name()));
        let mut numbers = BTreeSet::new();
        for value in &one.value {
            if !value.name().starts_with(&prefix) {
                findings.push(format!("{name}: {} does not begin with {prefix}", value.name()));
            }
            if !numbers.insert(value.number()) {
                findings.push(format!("{name}: the number {} is used twice", value.number()));
            }
        }
        let zero = one.value.first().filter(|value| value.number() == 0).map(|value| value.name());
        if zero != Some(&format!("{prefix}UNSPECIFIED")) {
            findings.push(format!("{name}: its first value is not {prefix}UNSPECIFIED = 0"));
        }
        let reserved = one.reserved_range.iter().flat_map(|range| range.start()..=range.end());
        let used: BTreeSet<i32> = numbers.iter().copied().chain(reserved).collect();
        if used.iter().copied().ne((0..).take(used.len())) {
            findings.push(format!("{name}: a number in a gap is neither used nor reserved"));
        }
    }
    none(findings, "enums");
}

#[test]
fn field_numbers_are_dense_and_used_once() {
    let mut findings = Vec::new();
    for (message, descriptor) in messages() {
        let mut used = BTreeSet::new();
        for field in &descriptor.field {
            if !used.insert(field.number()) {
                findings.push(format!("{message}: the number {} is used twice", field.number()));
            }
        }
        // The end of a reserved range of fields is exclusive.
        for number in descriptor.reserved_range.iter().flat_map(|range| range.start()..range.end()) {
            if !used.insert(number) {
                findings.push(format!("{message}: the number {number} is reserved, and used all the same"));
            }
        }
        if used.iter().copied().ne((1..).take(used.len())) {
            findings.push(format!("{message}: a number in a gap is neither used nor reserved"));
        }
    }
    none(findings, "field numbers");
}

#[test]
fn every_rpc_has_messages_of_its_own() {
    let mut findings = Vec::new();
    let mut users: BTreeMap<String, String> = BTreeMap::new();
    for file in files() {
        for (service, method) in
            file.service.iter().flat_map(|service| service.method.iter().map(move |method| (service, method)))
        {
            let rpc = format!("{}.{}", service.name(), method.name());
            for (message, suffix) in [(method.input_type(), "Request"), (method.output_type(), "Response")] {
                let expected = format!(".{}.{}{suffix}", file.package(), method.name());
                if message != expected {
                    findings.push(format!("{rpc}: {message} is not named {expected}"));
                }
                if let Some(other) = users.insert(message.to_owned(), rpc.clone()) {
                    findings.push(format!("{rpc}: {message} is also a message of {other}"));
                }
            }
        }
    }
    none(findings, "an rpc must have messages of its own, named after it");
}

/// Times are Timestamps and Durations. The name of a number that is a time ends with its unit.
#[test]
fn times_have_a_type_or_a_unit() {
    const TIMES: [&str; 13] = [
        "time", "timeout", "deadline", "duration", "latency", "period", "interval", "after", "before", "at",
        "since", "until", "age",
    ];
    const UNITS: [&str; 4] = ["seconds", "milliseconds", "microseconds", "nanoseconds"];
    const NUMBERS: [Type; 12] = [
        Type::Double,
        Type::Float,
        Type::Int64,
        Type::Uint64,
        Type::Int32,
        Type::Uint32,
        Type::Fixed64,
        Type::Fixed32,
        Type::Sfixed32,
        Type::Sfixed64,
        Type::Sint32,
        Type::Sint64,
    ];
    let mut findings = Vec::new();
    for (message, descriptor) in messages() {
        for field in &descriptor.field {
            let words: Vec<&str> = field.name().split('_').collect();
            let is_time = words.iter().any(|word| TIMES.contains(word));
            let has_unit = words.last().is_some_and(|word| UNITS.contains(word));
            if is_time && !has_unit && (NUMBERS.contains(&field.r#type()) || field.r#type() == Type::String) {
                findings.push(format!("{message}.{} is a {:?}", field.name(), field.r#type()));
            }
            if has_unit && field.r#type() == Type::Message {
                findings.push(format!("{message}.{} needs no unit: its type has one", field.name()));
            }
        }
    }
    none(findings, "use google.protobuf.Timestamp or Duration, or end the name with a unit");
}

fn upper_snake(name: &str) -> String {
    let mut out = String::new();
    for (index, c) in name.char_indices() {
        if c.is_ascii_uppercase() && index > 0 {
            out.push('_');
        }
        out.push(c.to_ascii_uppercase());
    }
    out
}
