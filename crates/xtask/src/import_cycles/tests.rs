use std::io;
use std::path::Path;

use super::find;

/// Returns the reports on the crate of these files.
fn cycles(files: &[(&str, &str)]) -> Vec<String> {
    let read = |path: &Path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == path);
        found.map(|(_, text)| (*text).to_owned()).ok_or(io::Error::from(io::ErrorKind::NotFound))
    };
    let found = find(Path::new("src/lib.rs"), &read).expect("parse the files");
    found.iter().map(ToString::to_string).collect()
}

/// Asserts that the two files `a` and `b` import each other by these names.
fn assert_cycle(files: &[(&str, &str)], (a, from_b): (&str, &str), (b, from_a): (&str, &str)) {
    let expected = format!(
        "2 files import each other\n  {a}\n    imports from {b}: {from_b}\n  {b}\n    imports from {a}: {from_a}"
    );
    assert_eq!(cycles(files), [expected]);
}

#[test]
fn siblings_that_import_each_other_are_a_cycle() {
    let files = [
        ("src/lib.rs", "mod a; mod b;"),
        ("src/a.rs", "use crate::b::B; pub struct A(B);"),
        ("src/b.rs", "pub struct B; impl B { fn a() -> Option<crate::a::A> { None } }"),
    ];
    assert_cycle(&files, ("src/a.rs", "B"), ("src/b.rs", "A"));
}

#[test]
fn a_cycle_can_go_through_several_files() {
    let found = cycles(&[
        ("src/lib.rs", "mod a; mod b; mod c; mod d;"),
        ("src/a.rs", "pub fn a() { crate::b::b() }"),
        ("src/b.rs", "use crate::c; pub fn b() { c::c() }"),
        ("src/c.rs", "use super::{a, d}; pub fn c() { a::a(); d::d() }"),
        ("src/d.rs", "pub fn d() {}"),
    ]);
    let expected = "3 files import each other\n  src/a.rs\n    imports from src/b.rs: b\n  src/b.rs\n    \
                    imports from src/c.rs: c\n  src/c.rs\n    imports from src/a.rs: a";
    assert_eq!(found, [expected]);
}

#[test]
fn a_child_and_its_parent_can_be_a_cycle() {
    let files = [
        ("src/lib.rs", "mod a;"),
        ("src/a.rs", "mod child; pub enum Kind { One } pub fn run() { child::run(Kind::One) }"),
        ("src/a/child.rs", "use super::Kind::*; pub fn run(kind: super::Kind) {}"),
    ];
    assert_cycle(&files, ("src/a.rs", "run"), ("src/a/child.rs", "Kind"));
}

#[test]
fn a_reexport_of_a_child_is_no_import() {
    let found = cycles(&[
        ("src/lib.rs", "mod a; pub use a::*;"),
        ("src/a.rs", "mod child; pub use child::Child; pub(crate) use child::run; pub struct A;"),
        ("src/a/child.rs", "use super::A; pub struct Child(A); pub fn run() {}"),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_private_use_of_a_child_is_an_import() {
    let files = [
        ("src/lib.rs", "mod child; use child::Child; pub struct A(Child); pub struct B;"),
        ("src/child.rs", "use crate::B; pub struct Child(B);"),
    ];
    assert_cycle(&files, ("src/child.rs", "B"), ("src/lib.rs", "Child"));
}

#[test]
fn reexports_are_followed_to_the_defining_file() {
    let files = [
        ("src/lib.rs", "mod a; mod b; pub use a::deep::A;"),
        ("src/a.rs", "pub mod deep; pub use deep::*;"),
        ("src/a/deep.rs", "use crate::b::B as Other; pub struct A(Other);"),
        ("src/b.rs", "use crate::A; use super::a; pub struct B; fn f(_: A, _: a::A) {}"),
    ];
    assert_cycle(&files, ("src/a/deep.rs", "B"), ("src/b.rs", "A"));
}

#[test]
fn names_come_through_globs() {
    let files = [
        ("src/lib.rs", "mod a; mod b;"),
        ("src/a.rs", "use super::b::*; pub struct A; fn f() { g(); }"),
        ("src/b.rs", "use super::a::*; pub struct B(A); pub fn g() {}"),
    ];
    assert_cycle(&files, ("src/a.rs", "g"), ("src/b.rs", "A"));
}

#[test]
fn test_code_does_not_count() {
    let found = cycles(&[
        ("src/lib.rs", "mod a; mod b; #[cfg(test)] mod missing;"),
        ("src/a.rs", "use crate::b::B; pub struct A(B);"),
        (
            "src/b.rs",
            "#[cfg(test)] use crate::a::A; pub struct B { #[cfg(all(test, unix))] a: crate::a::A }
             #[cfg(test)] mod tests { use crate::a::A; } #[test] fn test() { crate::a::A::new() }
             impl B { #[cfg(test)] fn a() { crate::a::A; } }",
        ),
    ]);
    assert_eq!(found, [""; 0]);
    let files = [
        ("src/lib.rs", "mod a; mod b;"),
        ("src/a.rs", "use crate::b::B; pub struct A(B);"),
        ("src/b.rs", "pub struct B; #[cfg(any(test, unix))] use crate::a::A;"),
    ];
    assert_cycle(&files, ("src/a.rs", "B"), ("src/b.rs", "A"));
}

#[test]
fn macros_and_attributes_name_items() {
    let files = [
        ("src/lib.rs", "mod a; mod b;"),
        ("src/a.rs", "use crate::b; pub fn a() { println!(\"{}\", b::text()) }"),
        ("src/b.rs", "pub fn text() {} struct B { #[serde(with = \"crate::a::a\")] field: u8 }"),
    ];
    assert_cycle(&files, ("src/a.rs", "text"), ("src/b.rs", "a"));
}

#[test]
fn a_macro_can_be_imported_by_its_own_name() {
    let files = [
        ("src/lib.rs", "mod a; mod b;"),
        ("src/a.rs", "macro_rules! list { () => { $crate::b::B } } pub(crate) use list;"),
        ("src/b.rs", "pub struct B; fn f() { crate::a::list!() }"),
    ];
    assert_cycle(&files, ("src/a.rs", "B"), ("src/b.rs", "list"));
}

#[test]
fn variables_fields_and_other_crates_are_no_imports() {
    let found = cycles(&[
        (
            "src/lib.rs",
            "mod a; pub use a::run; pub struct A; pub fn f(run: u8, x: B) { run; x.run; g!(x.run, run) }",
        ),
        ("src/a.rs", "use super::A; use ::lib::f; pub fn run() { other::f() }"),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn blocks_and_inline_modules_have_names_of_their_own() {
    let files = [
        ("src/lib.rs", "mod a; mod b;"),
        ("src/a.rs", "pub fn a() { use crate::b::inner as i; i::b() }"),
        ("src/b.rs", "pub mod inner { pub fn b() { super::super::a::a() } }"),
    ];
    assert_cycle(&files, ("src/a.rs", "b"), ("src/b.rs", "a"));
}

#[test]
fn an_import_can_have_the_name_of_its_module() {
    let files = [
        ("src/lib.rs", "mod run; use run::run; pub struct A; fn f() { run() }"),
        ("src/run.rs", "pub fn run() -> super::A { super::A }"),
    ];
    assert_cycle(&files, ("src/lib.rs", "run"), ("src/run.rs", "A"));
}
