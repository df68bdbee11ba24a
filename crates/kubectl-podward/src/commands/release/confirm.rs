//! Asks the user whether to go on.

use std::io::{IsTerminal, Write, stdin, stdout};

use anyhow::{Context, Result};

/// Returns whether somebody can be asked: programs are not.
pub(super) fn can_ask() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

/// Asks, and returns whether the answer is yes.
///
/// # Errors
/// When the terminal cannot be read.
pub(super) async fn ask(question: &str) -> Result<bool> {
    print!("{question} [y/N] ");
    stdout().flush().context("write to the terminal")?;
    let read = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        stdin().read_line(&mut answer).map(|_| answer)
    });
    Ok(is_yes(&read.await.context("wait for an answer")?.context("read the answer")?))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::is_yes;

    #[test]
    fn only_yes_is_yes() {
        assert!(is_yes("y\n") && is_yes(" Yes "));
        assert!(!is_yes("") && !is_yes("n") && !is_yes("yesterday"));
    }
}
