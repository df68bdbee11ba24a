//! The policy for the number of unavailable pods.

use std::fmt;

use thiserror::Error;

/// A number of pods cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidAmount {
    /// The value is neither a number nor a percentage, or is negative.
    #[error("{0:?} must be a number of pods, or a percentage of them such as \"25%\", and not less than 0")]
    Value(String),
    /// A number of an `expFunc` cannot be read.
    #[error("{field} of expFunc is {text:?} and must be a number such as \"0.5\"")]
    Function {
        /// `coeff` or `pow`.
        field: &'static str,
        /// The value.
        text: String,
    },
}

/// A number of pods, or a percentage of all pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// A number of pods.
    Pods(u32),
    /// A percentage; may be more than 100.
    Percent(u32),
}

impl Amount {
    /// Reads a percentage. In the API a number of pods is not a string.
    ///
    /// # Errors
    /// Fails when the text is not a percentage.
    pub fn percentage(text: &str) -> Result<Self, InvalidAmount> {
        let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
        percent.map(Amount::Percent).ok_or_else(|| InvalidAmount::Value(text.to_owned()))
    }

    /// Returns the amount for a number of pods.
    ///
    /// # Errors
    /// Fails when the number is negative.
    pub fn pods(number: i32) -> Result<Self, InvalidAmount> {
        u32::try_from(number).map(Amount::Pods).map_err(|_| InvalidAmount::Value(number.to_string()))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Pods(number) => number.fmt(f),
            Amount::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// `coeff * x ^ pow`, where x is the number of selected pods (the comment in the reference, which never evaluates it).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpFunc {
    coeff: f64,
    pow: f64,
}

impl ExpFunc {
    /// Reads the two numbers. The default of each is 1.
    ///
    /// # Errors
    /// Fails when a number is not finite.
    pub fn new(coeff: Option<&str>, pow: Option<&str>) -> Result<Self, InvalidAmount> {
        let number = |field, text: Option<&str>| {
            let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else { return Ok(1.0) };
            let number = text.parse().ok().filter(|number: &f64| number.is_finite());
            number.ok_or_else(|| InvalidAmount::Function { field, text: text.to_owned() })
        };
        Ok(ExpFunc { coeff: number("coeff", coeff)?, pow: number("pow", pow)? })
    }

    /// Returns the value for `pods`. A value within the rounding error of a whole number is that number.
    fn at(self, pods: u32) -> f64 {
        let value = self.coeff * f64::from(pods).powf(self.pow);
        let whole = value.round();
        if (value - whole).abs() <= whole.abs().max(1.0) * 1e-9 { whole } else { value }
    }
}

/// A limit of a number of pods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A number or a percentage.
    Amount(Amount),
    /// A function of the number of selected pods.
    Function(ExpFunc),
}

impl Limit {
    fn rounded_up(self, pods: u32) -> u32 {
        match self {
            Limit::Amount(Amount::Pods(number)) => number,
            Limit::Amount(Amount::Percent(percent)) => part(u64::from(pods) * u64::from(percent), 99),
            Limit::Function(function) => whole(function.at(pods).ceil()),
        }
    }

    fn rounded_down(self, pods: u32) -> u32 {
        match self {
            Limit::Amount(Amount::Pods(number)) => number,
            Limit::Amount(Amount::Percent(percent)) => part(u64::from(pods) * u64::from(percent), 0),
            Limit::Function(function) => whole(function.at(pods).floor()),
        }
    }
}

fn part(hundredfold: u64, add: u64) -> u32 {
    u32::try_from((hundredfold + add) / 100).unwrap_or(u32::MAX)
}

/// A negative value, or none, counts as 0; a value that is too large counts as the maximum.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(value: f64) -> u32 {
    // The cast saturates.
    value as u32
}

/// The number of selected pods that may be unavailable. Of several limits the strictest counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AvailablePolicy {
    /// The maximum of unavailable pods, rounded up as in the reference. Without an entry there is no maximum.
    pub max_unavailable: Vec<Limit>,
    /// The minimum of available pods, rounded down as in the reference. Without an entry there is no minimum.
    pub min_available: Vec<Limit>,
}

impl AvailablePolicy {
    /// Returns the maximum of unavailable pods among `pods`.
    ///
    /// ```
    /// use podward_core::rules::{Amount, AvailablePolicy, ExpFunc, Limit};
    ///
    /// let quarter = Limit::Amount(Amount::Percent(25));
    /// let root = Limit::Function(ExpFunc::new(None, Some("0.5")).unwrap());
    /// let policy = AvailablePolicy { max_unavailable: vec![quarter], min_available: vec![quarter] };
    /// assert_eq!((policy.most_unavailable(10), policy.fewest_available(10)), (3, 2));
    /// let policy = AvailablePolicy { max_unavailable: vec![quarter, root], min_available: Vec::new() };
    /// assert_eq!(policy.most_unavailable(100), 10, "the square root of 100 is less than a quarter of it");
    /// ```
    #[must_use]
    pub fn most_unavailable(&self, pods: u32) -> u32 {
        self.max_unavailable.iter().map(|limit| limit.rounded_up(pods)).min().unwrap_or(pods)
    }

    /// Returns the minimum of available pods among `pods`.
    #[must_use]
    pub fn fewest_available(&self, pods: u32) -> u32 {
        self.min_available.iter().map(|limit| limit.rounded_down(pods)).max().unwrap_or(0)
    }
}
