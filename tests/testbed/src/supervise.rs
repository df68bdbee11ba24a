//! The command line of the program `podward-testbed`. The library runs it; it is not meant for users.

use std::{ffi::OsString, path::Path, process::ExitCode};

use crate::{init, second_api, supervisor, text_of};

/// Runs `keep DIR`, `init DIR`, `node DIR NAME` or `api-proxy DIR`. For the program `podward-testbed` alone.
#[doc(hidden)]
pub fn supervise(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let texts: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let ran = match texts[..] {
        ["keep", dir] => supervisor::run(Path::new(dir)),
        ["init", dir] => init::run(Path::new(dir)),
        ["api-proxy", dir] => second_api::run(Path::new(dir)),
        ["node", dir, name] => init::run_node(Path::new(dir), name),
        _ => {
            eprintln!(
                "podward-testbed is started by the test cluster's library: see `cargo xtask testbed --help`"
            );
            return ExitCode::from(2);
        }
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", text_of(&error));
            ExitCode::FAILURE
        }
    }
}
