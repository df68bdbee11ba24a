//! The command that is run while an operation is permitted.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::signals::{Interruption, Interruptions};

/// How a command has ended.
#[derive(Debug)]
pub(super) struct CommandEnd {
    pub(super) status: ExitStatus,
    /// The first interruption meanwhile.
    pub(super) interruption: Option<Interruption>,
}

impl CommandEnd {
    /// Returns whether the command has done its work: what is interrupted may have ended early, whatever its exit code is.
    pub(super) fn is_success(&self) -> bool {
        self.status.success() && self.interruption.is_none()
    }

    /// Returns the exit code: that of the command, if it failed; otherwise that of the interruption, or 128 + the signal that
    /// has ended the command.
    pub(super) fn exit_code(&self) -> u8 {
        let code = self.status.code().and_then(|code| u8::try_from(code).ok());
        let signal = self.status.signal().and_then(|signal| u8::try_from(128 + signal).ok());
        match (code, self.interruption) {
            (Some(0) | None, Some(interruption)) => interruption.exit_code(),
            (code, _) => code.or(signal).unwrap_or(1),
        }
    }
}

/// Runs a command until it ends. The first SIGTERM or SIGHUP is sent to the command, so that it can clean up; SIGINT is not,
/// because a terminal does that. A second interruption kills the command.
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
        match (first, interruption) {
            // A terminal has sent SIGINT to the command as well. One that closes may send SIGHUP twice.
            (None, Interruption::Interrupt) | (Some(_), Interruption::Hangup) => {}
            (None, _) => {
                send(&child, interruption).with_context(|| format!("send {interruption:?} to {program}"))?
            }
            (Some(_), _) => child.start_kill().with_context(|| format!("kill {program}"))?,
        }
        first.get_or_insert(interruption);
    }
}

/// Sends the signal of `interruption` to a process that has not been waited for.
fn send(child: &Child, interruption: Interruption) -> Result<()> {
    let Some(id) = child.id() else { return Ok(()) };
    Ok(kill(Pid::from_raw(id.try_into()?), interruption.signal()?)?)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::super::signals::PlannedInterruptions;
    use super::*;

    async fn ended(line: &[&str], interruptions: &[Interruption]) -> CommandEnd {
        let arguments: Vec<String> = line[1..].iter().map(|&word| word.to_owned()).collect();
        run(line[0], &arguments, &mut PlannedInterruptions(interruptions.to_vec())).await.unwrap()
    }

    #[tokio::test]
    async fn sigterm_is_sent_to_the_command() {
        let end = ended(&["tail", "-f", "/dev/null"], &[Interruption::Terminate]).await;
        assert_eq!((end.status.signal(), end.interruption), (Some(15), Some(Interruption::Terminate)));
    }

    /// Interruptions, the last one first: the next one each time that the command has created the file.
    struct WhenReady(PathBuf, PlannedInterruptions);

    impl Interruptions for WhenReady {
        async fn next(&mut self) -> Interruption {
            while std::fs::remove_file(&self.0).is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            self.1.next().await
        }
    }

    #[tokio::test]
    async fn a_command_cleans_up_after_sigterm_and_the_second_one_kills_it() {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let again = ": > \"$1\"";
        let ends = format!("{again}; sleep 0.1; exit 7");
        for (trap, second, code, signal) in [
            ("exit 7", Interruption::Terminate, Some(7), None),
            (again, Interruption::Terminate, None, Some(9)),
            (&*ends, Interruption::Hangup, Some(7), None),
        ] {
            let script = format!("trap '{trap}' TERM; {again}; while :; do sleep 0.01; done");
            let arguments = ["-c", &script, "sh", ready.to_str().unwrap()].map(ToOwned::to_owned);
            let interruptions = PlannedInterruptions(vec![second, Interruption::Terminate]);
            let end = run("sh", &arguments, &mut WhenReady(ready.clone(), interruptions)).await.unwrap();
            assert_eq!((end.status.code(), end.status.signal()), (code, signal), "{trap}");
        }
    }

    #[tokio::test]
    async fn only_the_second_sigint_kills_the_command() {
        let end = ended(&["sh", "-c", "exit 3"], &[Interruption::Interrupt]).await;
        assert_eq!(end.status.code(), Some(3));
        let end = ended(&["tail", "-f", "/dev/null"], &[Interruption::Interrupt; 2]).await;
        assert_eq!((end.status.signal(), end.interruption), (Some(9), Some(Interruption::Interrupt)));
    }

    #[test]
    fn an_interrupted_command_has_not_done_its_work() {
        let of =
            |status: i32, interruption| CommandEnd { status: ExitStatus::from_raw(status), interruption };
        let (exited, killed, interrupt) = (3 << 8, 9, Some(Interruption::Interrupt));
        for (end, is_success, code) in [
            (of(0, None), true, 0),
            (of(0, interrupt), false, 130),
            (of(0, Some(Interruption::Terminate)), false, 143),
            (of(exited, None), false, 3),
            (of(exited, interrupt), false, 3),
            (of(killed, None), false, 137),
            (of(killed, interrupt), false, 130),
            (of(11, None), false, 139),
        ] {
            assert_eq!((end.is_success(), end.exit_code()), (is_success, code), "{end:?}");
        }
    }

    #[tokio::test]
    async fn a_program_that_does_not_exist_is_named() {
        let error =
            run("/nonexistent/program", &[], &mut PlannedInterruptions(Vec::new())).await.unwrap_err();
        assert!(format!("{error:#}").starts_with("run /nonexistent/program: "), "{error:#}");
    }
}
