//! The options that all demos have.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use podward_support::demo::{Act, Demo};

/// The options that all demos have.
#[derive(Debug, Args)]
pub(super) struct DemoChoices {
    /// Leave the cluster and what runs in it when the demo ends
    #[arg(long)]
    keep: bool,
    /// Also write the results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Cargo profile of Podward's services, the demo server and its client [default: bench-lite]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Perform only these acts
    #[arg(long = "act", value_name = "ACT", value_parser = act_parser())]
    acts: Vec<Act>,
    /// Run only without Podward (stock) or only with Podward
    #[arg(long, value_enum, value_name = "SIDE")]
    only: Option<DemoSide>,
    /// Number of repetitions of each act with Podward
    #[arg(long, value_name = "N", default_value_t = 1)]
    runs: usize,
}

impl DemoChoices {
    /// Returns a demo with these options.
    pub(super) fn into_demo(self) -> Demo {
        let default = Demo::default();
        Demo {
            keep: self.keep,
            json: self.json,
            profile: self.profile.unwrap_or_else(|| default.profile.clone()),
            acts: self.acts,
            runs: self.runs,
            no_stock: self.only == Some(DemoSide::Podward),
            no_podward: self.only == Some(DemoSide::Stock),
            ..default
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DemoSide {
    /// Without Podward
    Stock,
    /// With Podward
    Podward,
}

fn act_parser() -> impl TypedValueParser<Value = Act> {
    PossibleValuesParser::new(Act::ALL.map(Act::as_str))
        .try_map(|name| Act::ALL.into_iter().find(|act| act.as_str() == name).ok_or("no such act"))
}
