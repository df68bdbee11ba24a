//! The command line of the program `podward-testbed`. The library runs it; it is not meant for users.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use crate::{error::TestClusterError, init, supervisor, text_of};

/// Runs `keep DIR` or `init DIR`. For the program `podward-testbed` alone.
#[doc(hidden)]
pub fn supervise(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let run: fn(&std::path::Path) -> Result<(), TestClusterError> = match args
        .first()
        .and_then(|arg| arg.to_str())
    {
        Some("keep") if args.len() == 2 => supervisor::run,
        Some("init") if args.len() == 2 => init::run,
        _ => {
            eprintln!(
                "podward-testbed is started by the test cluster's library: see `cargo xtask testbed --help`"
            );
            return ExitCode::from(2);
        }
    };
    match run(&PathBuf::from(&args[1])) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", text_of(&error));
            ExitCode::FAILURE
        }
    }
}
