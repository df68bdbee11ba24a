//! How many pods may be unavailable.

use std::fmt;

use thiserror::Error;

/// Why a number of pods can't be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidAmount {
    /// Neither a number nor a percentage, or less than none.
    #[error("{0:?} must be a number of pods, or a percentage of them such as \"25%\", and not less than 0")]
    Value(String),
    /// A number of an `expFunc`.
    #[error("{field} of expFunc is {text:?} and must be a number such as \"0.5\"")]
    Function {
        /// `coeff` or `pow`.
        field: &'static str,
        /// What stands there.
        text: String,
    },
}

/// A number of pods, or a percentage of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many.
    Pods(u32),
    /// So many of a hundred; may be more than a hundred.
    Percent(u32),
}

impl Amount {
    /// Reads a text: a percentage. A number of pods is no text on the wire.
    ///
    /// # Errors
    /// When it is none.
    pub fn percentage(text: &str) -> Result<Self, InvalidAmount> {
        let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
        percent.map(Amount::Percent).ok_or_else(|| InvalidAmount::Value(text.to_owned()))
    }

    /// Takes a number of pods.
    ///
    /// # Errors
    /// When it is less than 0.
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

/// `coeff * x ^ pow`, with x the number of selected pods (the reference's comment on its type; it never evaluates it).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpFunc {
    coeff: f64,
    pow: f64,
}

impl ExpFunc {
    /// Reads the two numbers; each is 1 where it isn't set.
    ///
    /// # Errors
    /// When one is not a finite number.
    pub fn new(coeff: Option<&str>, pow: Option<&str>) -> Result<Self, InvalidAmount> {
        let number = |field, text: Option<&str>| {
            let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else { return Ok(1.0) };
            let number = text.parse().ok().filter(|number: &f64| number.is_finite());
            number.ok_or_else(|| InvalidAmount::Function { field, text: text.to_owned() })
        };
        Ok(ExpFunc { coeff: number("coeff", coeff)?, pow: number("pow", pow)? })
    }

    /// Its value for `pods`. One that is a whole number but for the error of the arithmetic is that number.
    fn at(self, pods: u32) -> f64 {
        let value = self.coeff * f64::from(pods).powf(self.pow);
        let whole = value.round();
        if (value - whole).abs() <= whole.abs().max(1.0) * 1e-9 { whole } else { value }
    }
}

/// What bounds a number of pods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A number or percentage.
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

/// What is less than none, or no number, is none; what is too large is the largest.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(value: f64) -> u32 {
    // Such a cast saturates.
    value as u32
}

/// How many of the selected pods may be unavailable. Of several limits the strictest counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AvailablePolicy {
    /// The most that may be unavailable; fractions are rounded up, as in the reference. None: as many as there are.
    pub max_unavailable: Vec<Limit>,
    /// The fewest that must stay available; fractions are rounded down, as in the reference. None: none.
    pub min_available: Vec<Limit>,
}

impl AvailablePolicy {
    /// The most of `pods` that may be unavailable.
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

    /// The fewest of `pods` that must stay available.
    #[must_use]
    pub fn fewest_available(&self, pods: u32) -> u32 {
        self.min_available.iter().map(|limit| limit.rounded_down(pods)).max().unwrap_or(0)
    }
}
