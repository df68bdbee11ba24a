//! What the demos have to choose from.

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use podward_support::demo::Act;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DemoSide {
    /// Without Podward
    Stock,
    /// With Podward
    Podward,
}

pub(super) fn act_parser() -> impl TypedValueParser<Value = Act> {
    PossibleValuesParser::new(Act::ALL.map(Act::as_str))
        .try_map(|name| Act::ALL.into_iter().find(|act| act.as_str() == name).ok_or("no such act"))
}
