//! Runs each target in a process of its own, one after the other: an input may end a process, and the memory of one
//! target does not count for another.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::campaign::{Failure, present_input, store};
use crate::record::InputRecord;

/// Inputs up to this size are also printed.
const PRINTED: usize = 4096;

/// Runs `arguments` with this program for `target`. Returns true if no input failed.
///
/// # Errors
/// When the process cannot be started, or its files cannot be read.
pub fn run(target: &str, arguments: &[String], folder: &Path) -> Result<bool> {
    let program = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(program);
    command.arg("worker").arg(target).args(arguments).stdin(Stdio::null());
    let status = command.status().with_context(|| format!("start a process for the target {target}"))?;
    if status.success() {
        return Ok(true);
    }
    if status.code().is_none() {
        // The process could not report it.
        let present = present_input(folder, target);
        let input = InputRecord::read(&present).with_context(|| format!("read {}", present.display()))?;
        match input {
            Some(input) => {
                let file = store(folder, target, &input)?;
                report(target, &Failure { what: format!("the process ended with {status}"), input, file });
            }
            None => eprintln!("{target}: the process ended with {status} before its first input"),
        }
    }
    Ok(false)
}

/// Prints a failure, and how to repeat it.
pub fn report(target: &str, failure: &Failure) {
    let Failure { what, input, file } = failure;
    eprintln!("{target}: {what}");
    eprintln!("  input of {} bytes, variant {}: {}", input.body.len(), input.variant, shown(file).display());
    if input.body.len() <= PRINTED {
        eprintln!("  {}", input.body.escape_ascii());
    }
    eprintln!("  to repeat it: cargo xtask fuzz {target} --input {}", shown(file).display());
}

/// Returns the path relative to the present folder, if it is below it.
fn shown(file: &Path) -> PathBuf {
    let folder = std::env::current_dir().unwrap_or_default();
    file.strip_prefix(folder).unwrap_or(file).to_owned()
}
