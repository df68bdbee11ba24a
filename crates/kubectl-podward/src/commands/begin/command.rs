//! The command that is run while an operation is permitted.

use std::process::{ExitStatus, Stdio};

use anyhow::{Context, Result};
use tokio::process::Command;

use super::signals::{Interruption, Interruptions};

/// How a command has ended.
#[derive(Debug)]
pub(super) struct CommandEnd {
    pub(super) status: ExitStatus,
    /// The first interruption meanwhile.
    pub(super) interruption: Option<Interruption>,
}

/// Runs a command until it ends. SIGTERM and SIGHUP kill it. A terminal sends SIGINT to the command, too, which then ends in
/// its own way; the second SIGINT kills it.
///
/// # Errors
/// When the command cannot be started.
pub(super) async fn run(
    program: &str,
    arguments: &[String],
    interruptions: &mut impl Interruptions,
) -> Result<CommandEnd> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::inherit()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("run {program}"))?;
    let mut first = None;
    loop {
        let interruption = tokio::select! {
            status = child.wait() => {
                let status = status.with_context(|| format!("wait for the end of {program}"))?;
                return Ok(CommandEnd { status, interruption: first });
            }
            interruption = interruptions.next() => interruption,
        };
        if interruption != Interruption::Interrupt || first.is_some() {
            child.start_kill().with_context(|| format!("kill {program}"))?;
        }
        first.get_or_insert(interruption);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::super::signals::PlannedInterruptions;
    use super::*;

    async fn ended(line: &[&str], interruptions: &[Interruption]) -> CommandEnd {
        let arguments: Vec<String> = line[1..].iter().map(|&word| word.to_owned()).collect();
        run(line[0], &arguments, &mut PlannedInterruptions(interruptions.to_vec())).await.unwrap()
    }

    #[tokio::test]
    async fn sigterm_and_the_loss_of_the_terminal_kill_the_command() {
        for interruption in [Interruption::Terminate, Interruption::Hangup] {
            let end = ended(&["tail", "-f", "/dev/null"], &[interruption]).await;
            assert_eq!((end.status.signal(), end.interruption), (Some(9), Some(interruption)));
        }
    }

    #[tokio::test]
    async fn only_the_second_sigint_kills_the_command() {
        let end = ended(&["sh", "-c", "exit 3"], &[Interruption::Interrupt]).await;
        assert_eq!(end.status.code(), Some(3));
        let end = ended(&["tail", "-f", "/dev/null"], &[Interruption::Interrupt; 2]).await;
        assert_eq!((end.status.signal(), end.interruption), (Some(9), Some(Interruption::Interrupt)));
    }

    #[tokio::test]
    async fn a_program_that_does_not_exist_is_named() {
        let error =
            run("/nonexistent/program", &[], &mut PlannedInterruptions(Vec::new())).await.unwrap_err();
        assert!(format!("{error:#}").starts_with("run /nonexistent/program: "), "{error:#}");
    }
}
