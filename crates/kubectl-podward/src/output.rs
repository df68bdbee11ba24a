//! The formats of results.

use anstyle::Style;
use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;

use crate::connection::with_connection;
use crate::terminal::{LineStyle, print};

/// The format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Text for people
    #[value(alias = "table")]
    Text,
    /// JSON, for programs
    Json,
    /// YAML, with the same fields
    Yaml,
}

impl Output {
    /// Prints `result`, or as text what `text` returns, in the styles of `style`.
    ///
    /// # Errors
    /// When the output is closed.
    pub(crate) fn print<R: Serialize>(
        self,
        result: &R,
        text: impl FnOnce() -> String,
        style: LineStyle,
    ) -> Result<()> {
        let text = self.written(result, text)?;
        let style = if self == Self::Text { style } else { |_: usize, _: &str| Style::new() };
        print(&text, style).context("print the result")
    }

    fn written<R: Serialize>(self, result: &R, text: impl FnOnce() -> String) -> Result<String> {
        match self {
            Self::Text => Ok(with_connection(&text())),
            Self::Json => {
                Ok(serde_json::to_string_pretty(result).context("write the result as JSON")? + "\n")
            }
            Self::Yaml => serde_saphyr::to_string(result).context("write the result as YAML"),
        }
    }
}

/// The format of a result about pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PodsOutput {
    /// Text for people
    #[value(alias = "table")]
    Text,
    /// JSON, for programs
    Json,
    /// YAML, with the same fields
    Yaml,
    /// pod/NAME of each pod that waits
    Name,
}

impl PodsOutput {
    /// Prints `result` as [`Output::print`] does, or the names of the pods `waiting`, one in each line.
    ///
    /// # Errors
    /// When the output is closed.
    pub(crate) fn print<'a, R: Serialize>(
        self,
        result: &R,
        text: impl FnOnce() -> String,
        waiting: impl IntoIterator<Item = &'a str>,
        style: LineStyle,
    ) -> Result<()> {
        let output = match self {
            Self::Text => Output::Text,
            Self::Json => Output::Json,
            Self::Yaml => Output::Yaml,
            Self::Name => {
                let names: String = waiting.into_iter().map(|name| format!("pod/{name}\n")).collect();
                return print(&names, |_, _| Style::new()).context("print the names");
            }
        };
        output.print(result, text, style)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn yaml_says_the_same_as_json() {
        let strings =
            ["", "yes", "null", "1.0", "- a", "a: b", "# c", "two\nlines\n", " x ", "\u{1b}[31m", "ü"];
        let result =
            json!({"strings": strings, "none": null, "number": 18_446_744_073_709_551_615_u64, "empty": []});
        let yaml = Output::Yaml.written(&result, String::new).unwrap();
        assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), result, "{yaml}");
        let json = Output::Json.written(&result, String::new).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), result);
        assert_eq!(Output::Text.written(&result, || "text".to_owned()).unwrap(), "text");
    }
}
