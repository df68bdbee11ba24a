//! `kubectl podward completion`: scripts for shells and for kubectl.

mod candidates;
mod names;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::builder::PossibleValue;
use clap::{Args, Command, ValueEnum};
use clap_complete::{Shell, generate};

use candidates::{Candidates, candidates};
use names::names;

/// The program that the scripts of shells complete, which is also the plugin's file.
const PROGRAM: &str = "kubectl-podward";
/// The program that kubectl runs to complete `kubectl podward`. The flags after `--` are of the line that is completed.
const OF_KUBECTL: &str = "#!/bin/sh\nexec kubectl-podward complete -- \"$@\"\n";
/// What kubectl's scripts do with the answer, see the directives of Cobra: nothing more, or complete names of files if
/// there are no candidates.
const NO_FILES: u8 = 4;
const NO_SPACE: u8 = 2;
const FILES: u8 = 0;

/// Print a script that completes commands and flags in a shell, or below kubectl
///
/// Needs no cluster. The scripts of shells complete `kubectl-podward`. For `kubectl podward`, kubectl runs the program
/// kubectl_complete-podward, which `completion kubectl` prints; it must be executable and in the PATH.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  source <(kubectl podward completion bash)\n  kubectl podward completion kubectl > ~/.local/bin/kubectl_complete-podward && chmod +x ~/.local/bin/kubectl_complete-podward"
)]
pub(crate) struct Completion {
    /// The shell, or kubectl
    #[arg(value_enum)]
    of: Completed,
}

/// What completes command lines.
#[derive(Clone, Copy, Debug)]
enum Completed {
    Shell(Shell),
    Kubectl,
}

impl ValueEnum for Completed {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: &[Completed] = &[
            Completed::Kubectl,
            Completed::Shell(Shell::Bash),
            Completed::Shell(Shell::Elvish),
            Completed::Shell(Shell::Fish),
            Completed::Shell(Shell::PowerShell),
            Completed::Shell(Shell::Zsh),
        ];
        ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Shell(shell) => shell.to_possible_value(),
            Self::Kubectl => Some(PossibleValue::new("kubectl")),
        }
    }
}

impl Completion {
    /// `command` is the whole command line.
    pub(crate) fn run(&self, mut command: Command) -> Result<ExitCode> {
        let mut script = Vec::new();
        match self.of {
            Completed::Kubectl => script.extend(OF_KUBECTL.as_bytes()),
            Completed::Shell(shell) => generate(shell, &mut command, PROGRAM, &mut script),
        }
        std::io::stdout().write_all(&script).context("write the script")?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Print what can come next in a command line, in the format of kubectl
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct Complete {
    /// The words after `kubectl podward`; the last one is to be completed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl Complete {
    /// `command` is the whole command line.
    pub(crate) async fn run(&self, mut command: Command) -> Result<ExitCode> {
        command.build();
        let Candidates { words, files, names: of } = candidates(&command, &self.words);
        let mut lines = String::new();
        let mut ends_with_slash = false;
        if let (Some(of), Some(word)) = (of, self.words.last()) {
            for name in names(of, word).await {
                ends_with_slash |= name.ends_with('/');
                let _ = writeln!(lines, "{name}");
            }
        }
        for candidate in words {
            // Writing to a String cannot fail.
            let _ = writeln!(lines, "{}\t{}", candidate.word, candidate.help);
        }
        let directive = if files { FILES } else { NO_FILES } | if ends_with_slash { NO_SPACE } else { 0 };
        let _ = writeln!(lines, ":{directive}");
        std::io::stdout().write_all(lines.as_bytes()).context("write the candidates")?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::PluginArgs;

    #[test]
    fn flags_of_the_completed_line_are_words_of_it() {
        let line = ["-n", "shop", "--context", "prod", "begin", "web-0", "--", "l"];
        let call = OF_KUBECTL.lines().last().unwrap().strip_prefix("exec ").unwrap();
        let call = call.split(' ').filter(|word| !word.contains('$')).chain(line);
        let matches = PluginArgs::command().try_get_matches_from(call).unwrap();
        let (command, of) = matches.subcommand().unwrap();
        let words: Vec<&String> = of.get_many("words").unwrap().collect();
        assert_eq!((command, words), ("complete", line.map(ToOwned::to_owned).iter().collect()));
    }
}
