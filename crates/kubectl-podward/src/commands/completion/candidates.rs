//! What can come next in a command line.

use clap::{Arg, Command, ValueHint};

/// A word that can come next.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) word: String,
    /// One line.
    pub(super) help: String,
}

/// What can come next.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Candidates {
    pub(super) words: Vec<Candidate>,
    /// True if the name of a file can come next, too.
    pub(super) files: bool,
}

/// Returns what the last of `words` can become. `command` is the whole command line, and built.
pub(super) fn candidates(command: &Command, words: &[String]) -> Candidates {
    let Some((last, before)) = words.split_last() else { return Candidates::default() };
    let mut command = command;
    let mut value_of: Option<&Arg> = None;
    for word in before {
        if value_of.take().is_some() {
            continue;
        }
        match word.strip_prefix("--") {
            // A program to run, with its arguments.
            Some("") => return Candidates { files: true, ..Candidates::default() },
            Some(long) => value_of = flag(command, |arg| arg.get_long() == Some(long)),
            None => match word.strip_prefix('-').and_then(|short| short.chars().last()) {
                Some(short) => value_of = flag(command, |arg| arg.get_short() == Some(short)),
                None => command = command.find_subcommand(word).unwrap_or(command),
            },
        }
    }
    let mut found = match (value_of, last.starts_with('-')) {
        (Some(arg), _) => values(arg),
        (None, true) => Candidates { words: flags(command), files: false },
        (None, false) => Candidates { words: subcommands(command), files: false },
    };
    found.words.retain(|candidate| candidate.word.starts_with(last));
    found
}

/// Returns the flag that takes a value of its own.
fn flag(command: &Command, is: impl Fn(&Arg) -> bool) -> Option<&Arg> {
    command.get_arguments().find(|arg| arg.get_action().takes_values() && is(arg))
}

fn values(arg: &Arg) -> Candidates {
    let words = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
    let words = words.map(|value| candidate(value.get_name(), value.get_help().map(ToString::to_string)));
    let files = matches!(arg.get_value_hint(), ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath);
    Candidates { words: words.collect(), files }
}

fn flags(command: &Command) -> Vec<Candidate> {
    let visible = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let named = visible.filter_map(|arg| Some((arg.get_long()?, arg.get_help())));
    named.map(|(long, help)| candidate(&format!("--{long}"), help.map(ToString::to_string))).collect()
}

fn subcommands(command: &Command) -> Vec<Candidate> {
    let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
    visible
        .map(|command| candidate(command.get_name(), command.get_about().map(ToString::to_string)))
        .collect()
}

fn candidate(word: &str, help: Option<String>) -> Candidate {
    let help = help.and_then(|help| help.lines().next().map(ToOwned::to_owned)).unwrap_or_default();
    Candidate { word: word.to_owned(), help }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::PluginArgs;

    fn words(line: &str) -> (Vec<String>, bool) {
        let mut command = PluginArgs::command();
        command.build();
        let line: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
        let found = candidates(&command, &line);
        (found.words.into_iter().map(|candidate| candidate.word).collect(), found.files)
    }

    #[test]
    fn commands_flags_and_values_are_completed() {
        assert_eq!(
            words("b"),
            (vec!["begin".to_owned(), "break-glass".to_owned(), "busy".to_owned()], false)
        );
        assert_eq!(words("-n shop wh").0, ["why"]);
        assert_eq!(words("why --all").0, ["--all-namespaces"]);
        assert_eq!(words("why --kube").0, ["--kubeconfig"], "flags of all commands");
        assert_eq!(words("trace web-0 -o ").0, ["text", "json", "yaml"]);
        assert_eq!(words("trace web-0 --output j").0, ["json"]);
        assert_eq!(
            words("completion z").0,
            Vec::<String>::new(),
            "names of objects and shells are not completed"
        );
    }

    #[test]
    fn files_are_left_to_the_shell() {
        assert_eq!(words("trace web-0 --svg w"), (Vec::new(), true));
        assert_eq!(words("begin web-0 -- l"), (Vec::new(), true));
        assert_eq!(words("why web-0 --namespace s"), (Vec::new(), false));
    }

    #[test]
    fn candidates_have_help_of_one_line() {
        let mut command = PluginArgs::command();
        command.build();
        let found = candidates(&command, &["".to_owned()]);
        assert!(found.words.len() > 10);
        for Candidate { word, help } in found.words {
            assert!(word == "help" || !help.is_empty() && !help.contains(['\n', '\t']), "{word}: {help}");
        }
    }
}
