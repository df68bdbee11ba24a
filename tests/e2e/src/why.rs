//! Asks `kubectl podward why` until it says what is expected.

use std::time::Duration;

use anyhow::{Context, Result};
use podward_support::within;

use crate::fixture::Fixture;

/// Back-offs of the kubelet take their time.
const LONG: Duration = Duration::from_secs(90);
/// The time between two questions.
const PAUSE: Duration = Duration::from_millis(300);

impl Fixture {
    /// Waits until the first line of `why` about `asked` contains `words`, and the whole text contains each of `also`, which
    /// others may write later. Returns the text.
    ///
    /// # Errors
    /// Fails if it does not say so in time.
    pub async fn until_why(&self, asked: &str, words: &str, also: &[&str]) -> Result<String> {
        let mut last = String::new();
        let said = async {
            loop {
                let said = self.plugin(&["why", asked]).await?.said;
                let begins = said.lines().next().is_some_and(|line| line.contains(words));
                if begins && also.iter().all(|words| said.contains(words)) {
                    return Ok(said);
                }
                last = said;
                tokio::time::sleep(PAUSE).await;
            }
        };
        let what = || format!("`why {asked}` to begin with {words:?} and to contain {also:?}");
        let said = within(LONG, what, said).await;
        said.with_context(|| format!("the last answer was: {last}"))
    }
}
