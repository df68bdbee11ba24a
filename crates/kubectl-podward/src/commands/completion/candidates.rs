//! What can come next in a command line.

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, Command, ValueHint};

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
    /// The objects of the cluster whose names can come next, too.
    pub(super) names: Option<NamesOf>,
}

/// Objects of the cluster that the word begins to name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NamesOf {
    pub(super) kind: NamedKind,
    /// The values of the flags so far, by the names of the flags: where the objects are.
    pub(super) flags: BTreeMap<String, String>,
}

/// What a word names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedKind {
    Namespace,
    Pod,
    /// A pod, or `KIND/NAME`.
    Object,
    /// `KIND/NAME`.
    Workload,
}

/// Returns what the last of `words` can become. `command` is the whole command line, and built.
pub(super) fn candidates(command: &Command, words: &[String]) -> Candidates {
    let Some((last, before)) = words.split_last() else { return Candidates::default() };
    let mut command = command;
    let mut value_of: Option<&Arg> = None;
    let mut flag_values = BTreeMap::new();
    let mut positionals = 0;
    for word in before {
        if let Some(arg) = value_of.take() {
            flag_values.insert(arg.get_id().to_string(), word.clone());
            continue;
        }
        match word.strip_prefix("--") {
            // A program to run, with its arguments.
            Some("") => return Candidates { files: true, ..Candidates::default() },
            Some(long) => {
                let (long, value) =
                    long.split_once('=').map_or((long, None), |(long, value)| (long, Some(value)));
                value_of = flag(command, |arg| arg.get_long() == Some(long));
                if let Some(value) = value
                    && let Some(arg) = value_of.take()
                {
                    flag_values.insert(arg.get_id().to_string(), value.to_owned());
                }
            }
            None => match word.strip_prefix('-').and_then(|short| short.chars().last()) {
                Some(short) => value_of = flag(command, |arg| arg.get_short() == Some(short)),
                None => match command.find_subcommand(word) {
                    Some(subcommand) => command = subcommand,
                    None => positionals += 1,
                },
            },
        }
    }
    let mut found = match (value_of, last.starts_with('-')) {
        (Some(arg), _) => values(arg),
        (None, true) => Candidates { words: flags(command), ..Candidates::default() },
        (None, false) => Candidates { words: subcommands(command), ..Candidates::default() },
    };
    let named = match value_of {
        Some(arg) => (arg.get_id() == "namespace").then_some(NamedKind::Namespace),
        None if last.starts_with('-') => None,
        None => positional(command, positionals).and_then(named_kind),
    };
    found.names = named.map(|kind| NamesOf { kind, flags: flag_values });
    found.words.retain(|candidate| candidate.word.starts_with(last));
    found
}

/// Returns the flag that takes a value of its own.
fn flag(command: &Command, is: impl Fn(&Arg) -> bool) -> Option<&Arg> {
    command.get_arguments().find(|arg| arg.get_action().takes_values() && is(arg))
}

/// Returns the argument without a flag at this place. The last one may take several.
fn positional(command: &Command, place: usize) -> Option<&Arg> {
    let all: Vec<&Arg> = command.get_positionals().filter(|arg| !arg.is_last_set()).collect();
    let several = all.last().filter(|arg| matches!(arg.get_action(), ArgAction::Append));
    all.get(place).or(several).copied()
}

/// Returns what an argument names, by the word that stands for it in the help.
fn named_kind(arg: &Arg) -> Option<NamedKind> {
    match arg.get_value_names()?.first()?.as_str() {
        "POD" if arg.get_id() == "object" => Some(NamedKind::Object),
        "POD" => Some(NamedKind::Pod),
        "WORKLOAD" => Some(NamedKind::Workload),
        _ => None,
    }
}

fn values(arg: &Arg) -> Candidates {
    let words = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
    let words = words.map(|value| candidate(value.get_name(), value.get_help().map(ToString::to_string)));
    let files = matches!(arg.get_value_hint(), ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath);
    Candidates { words: words.collect(), files, names: None }
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
            "shells are values of an argument without a flag, which are not completed"
        );
    }

    #[test]
    fn names_of_objects_are_asked_for_where_a_command_takes_one() {
        let names = |line: &str| {
            let mut command = PluginArgs::command();
            command.build();
            let line: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
            candidates(&command, &line).names.map(|names| (names.kind, names.flags))
        };
        let flags = |all: &[(&str, &str)]| {
            all.iter().map(|(flag, value)| ((*flag).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(names("why we"), Some((NamedKind::Object, flags(&[]))));
        let expected = flags(&[("context", "prod"), ("namespace", "shop")]);
        assert_eq!(names("--context prod why --namespace=shop we"), Some((NamedKind::Object, expected)));
        assert_eq!(names("begin -n shop -"), None);
        assert_eq!(names("check deploy/w"), Some((NamedKind::Workload, flags(&[]))));
        assert_eq!(names("trace web-0 -n s"), Some((NamedKind::Namespace, flags(&[]))));
        assert_eq!(names("trace web-0 "), None, "it takes one pod");
        assert_eq!(names("release web-0 w"), Some((NamedKind::Pod, flags(&[]))), "it takes several");
        assert_eq!(names("begin web-0 -- l"), None);
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
