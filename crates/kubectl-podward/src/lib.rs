//! `kubectl podward`: the command line of Podward. The Helm chart's jobs use it too.
//!
//! Results go to the standard output, progress to the standard error.
#![forbid(unsafe_code)]

mod api;
#[cfg(test)]
mod api_server;
mod args;
mod clock;
mod commands;
mod connection;
mod duration;
mod gather;
mod kubectl_args;
mod lifecycle_message;
mod object_target;
mod operation;
mod output;
mod parsed;
mod terminal;
mod workload;
mod workload_kind;

use std::io::{Write, stderr};
use std::process::ExitCode;

use anyhow::{Context, Error};
use podward_core::webhook_path::without_webhook_secrets;

pub use crate::args::PluginArgs;
use crate::connection::with_connection;

/// Runs the command of `args` and returns its exit code. If the command cannot be run, prints the error, which says what
/// was being done, and to which object. A command that reports a problem returns a failure without an error.
pub fn run(args: PluginArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = runtime.context("start a runtime").and_then(|runtime| runtime.block_on(args.run()));
    outcome.unwrap_or_else(|error| {
        let _ = writeln!(stderr(), "{}", shown(&error));
        exit_code(&error)
    })
}

/// Returns the exit code of an error: 2 if the command line is wrong, as clap has it.
fn exit_code(error: &Error) -> ExitCode {
    ExitCode::from(if error.is::<clap::Error>() { 2 } else { 1 })
}

/// Returns the text of an error, without the secrets of webhook paths, which the API server writes into its error about
/// a webhook that it cannot call.
fn shown(error: &Error) -> String {
    let text = match error.downcast_ref::<clap::Error>() {
        Some(usage) => usage.to_string().trim_end().to_owned(),
        None => with_connection(&format!("Error: {error:?}")),
    };
    without_webhook_secrets(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_wrong_command_line_has_an_exit_code_of_its_own() {
        let code = |code: u8| format!("{:?}", ExitCode::from(code));
        let error = anyhow::Error::from(object_target::usage("name one object"));
        assert_eq!(
            (shown(&error), format!("{:?}", exit_code(&error))),
            ("error: name one object".to_owned(), code(2))
        );
        assert_eq!(format!("{:?}", exit_code(&anyhow!("read pod web"))), code(1));
    }

    #[test]
    fn errors_are_shown_with_their_causes_and_without_secrets() {
        let secret = "0123456789abcdef".repeat(4);
        let called = format!(
            "failed calling webhook: Post \"https://mutating-webhook.podward-system.svc:443/{secret}/x?timeout=5s\": EOF"
        );
        let error = shown(&anyhow!(called).context("release the removals"));
        assert!(error.starts_with("Error: release the removals\n\nCaused by:\n"), "{error}");
        assert!(error.contains(".svc:443/<secret>/x?") && !error.contains(&secret), "{error}");
    }
}
