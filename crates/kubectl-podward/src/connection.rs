//! Commands in messages, which users paste: they need the options of kubectl that this command line has.

use std::borrow::Cow;
use std::sync::OnceLock;

/// The options of this command line, each after a space.
static OPTIONS: OnceLock<String> = OnceLock::new();

/// What follows `kubectl` in a command, and not in a sentence about an operation with the id `kubectl`.
const VERBS: [&str; 14] = [
    "podward",
    "get",
    "describe",
    "delete",
    "annotate",
    "label",
    "logs",
    "patch",
    "apply",
    "edit",
    "taint",
    "uncordon",
    "-n",
    "--namespace",
];

/// What comes before a command that is to be pasted, unless it begins a line. Others write about kubectl, too.
const BEFORE: [&str; 8] = [": ", "-> ", "; ", ", ", "`", "(", "then ", "and "];

/// Sets the options that [`with_connection`] adds from now on: of `--context=prod`, ` --context=prod`.
pub(crate) fn set_options(options: String) {
    // A process has one command line.
    let _ = OPTIONS.set(options);
}

/// Returns the text with the options of this command line in its commands.
pub(crate) fn with_connection(text: &str) -> String {
    with_options(text, OPTIONS.get().map_or("", String::as_str))
}

/// kubectl takes no flags before the name of a plugin.
fn with_options(text: &str, options: &str) -> String {
    const KUBECTL: &str = "kubectl ";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(KUBECTL).filter(|_| !options.is_empty()) {
        let line = text[..text.len() - rest.len() + at].rsplit('\n').next().unwrap_or_default();
        let is_pasted = line.trim().is_empty() || BEFORE.iter().any(|before| line.ends_with(before));
        let (before, after) = rest.split_at(at + KUBECTL.len());
        out.push_str(before);
        let verb = after.split([' ', '`', '\n', ')', ',', ';', ':']).next().unwrap_or_default();
        rest = match verb {
            _ if !is_pasted => after,
            "podward" => {
                out.push_str(verb);
                out.push_str(options);
                &after[verb.len()..]
            }
            verb if VERBS.contains(&verb) => {
                out.push_str(&options[1..]);
                out.push(' ');
                after
            }
            _ => after,
        };
    }
    out + rest
}

/// Quotes a word for a shell, if it needs that.
pub(crate) fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@=,+%".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => Cow::Borrowed(word),
        false => Cow::Owned(format!("'{}'", word.replace('\'', r"'\''"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_get_the_options_of_the_command_line() {
        let of = |text: &str| with_options(text, " --context=prod");
        assert_eq!(
            of("it goes on; to end it: kubectl podward cancel web -n shop --id kubectl: read pod shop/web"),
            "it goes on; to end it: kubectl podward --context=prod cancel web -n shop --id kubectl: read pod shop/web"
        );
        assert_eq!(
            of("lost then: kubectl delete pod web -n shop"),
            "lost then: kubectl --context=prod delete pod web -n shop"
        );
        assert_eq!(
            of("next: kubectl -n shop get pod\n  kubectl podward why x"),
            "next: kubectl --context=prod -n shop get pod\n  kubectl podward --context=prod why x"
        );
        assert_eq!(
            of("delete it with `kubectl --namespace x delete pod` (kubectl podward why x)"),
            "delete it with `kubectl --context=prod --namespace x delete pod` (kubectl podward --context=prod why x)"
        );
        for text in [
            "operation kubectl of pod shop/web is finished",
            "kubectl.kubernetes.io/x",
            "run kubectl",
            "",
            "busy until 2026-01-01T10:02:00Z: kubectl exec backup",
            "busy until 2026-01-01T10:02:00Z: waits for kubectl get backup",
            "no tool that drains nodes was found; kubectl drain waits until its --timeout",
            "the container said: exec of kubectl apply failed",
        ] {
            assert_eq!(of(text), text);
        }
        assert_eq!(with_options("kubectl get pods", ""), "kubectl get pods");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("system:serviceaccount:shop:ci"), "system:serviceaccount:shop:ci");
        assert_eq!(quoted("/home/o'x y"), r"'/home/o'\''x y'");
        assert_eq!(quoted(""), "''");
    }
}
