//! Checks that a program is static: it runs on every Linux of its architecture, whichever C library that has.

use anyhow::{Context, Result, bail, ensure};
use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

/// Checks that the ELF file `program` names no loader and no shared library.
///
/// A static program that can be loaded at any address (static-pie) has a dynamic section, too: it contains the program's
/// own relocations.
///
/// # Errors
/// When the program is not static, or not a 64-bit ELF file.
pub(super) fn check(program: &[u8]) -> Result<()> {
    let header = FileHeader64::<Endianness>::parse(program).context("not a 64-bit ELF file")?;
    let endian = header.endian().context("not a 64-bit ELF file")?;
    let segments = header.program_headers(endian, program).context("read the ELF program headers")?;
    ensure!(!segments.is_empty(), "not a program: the ELF file has no program headers");
    let mut needs = Vec::new();
    for segment in segments {
        if let Some(loader) = segment.interpreter(endian, program).context("read the name of the loader")? {
            needs.push(format!("the loader {}", String::from_utf8_lossy(loader)));
        }
        let dynamic = segment.dynamic(endian, program).context("read the dynamic section")?;
        let libraries =
            dynamic.unwrap_or_default().iter().filter(|entry| entry.tag(endian) == DT_NEEDED).count();
        if libraries > 0 {
            needs.push(format!("shared libraries ({libraries})"));
        }
    }
    if needs.is_empty() {
        return Ok(());
    }
    bail!(
        "the program is not static: it needs {}. The flags for static programs are in .cargo/config.toml; \
         CARGO_TARGET_<TARGET>_RUSTFLAGS in the environment can change them",
        needs.join(" and ")
    )
}

#[cfg(test)]
mod tests {
    use object::elf::PT_INTERP;

    use super::*;

    /// cargo, which runs the tests, needs the C library of the machine.
    fn dynamic_program() -> Vec<u8> {
        std::fs::read(env!("CARGO")).expect("the program cargo")
    }

    #[test]
    fn the_programs_of_this_workspace_are_static() {
        let this = std::env::current_exe().expect("a path");
        check(&std::fs::read(this).expect("this program")).expect("a static program");
    }

    #[test]
    fn a_program_with_a_loader_or_a_shared_library_is_refused() {
        let mut program = dynamic_program();
        let error = check(&program).expect_err("a dynamic program").to_string();
        assert!(error.contains("the loader /lib") && error.contains("shared libraries ("), "{error}");

        // Shared libraries alone: the segment with the loader gets the type of an unused one.
        let header = FileHeader64::<Endianness>::parse(program.as_slice()).expect("a header");
        let endian = header.endian().expect("an endianness");
        let segments = header.program_headers(endian, program.as_slice()).expect("segments");
        let loader =
            segments.iter().position(|segment| segment.p_type(endian) == PT_INTERP).expect("a loader");
        let start = header.e_phoff.get(endian) as usize + loader * size_of_val(&segments[0]);
        program[start..start + 4].fill(0);
        let error = check(&program).expect_err("a shared library").to_string();
        assert!(!error.contains("the loader") && error.contains("shared libraries ("), "{error}");
    }

    #[test]
    fn other_files_are_refused() {
        for other in [&b""[..], b"#!/bin/sh\n", b"\x7fELF"] {
            let error = check(other).expect_err("not a program");
            assert_eq!(error.to_string(), "not a 64-bit ELF file");
        }
    }
}
