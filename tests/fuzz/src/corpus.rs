//! The inputs that mutations begin with: the seeds, and inputs whose outcome was new.

use std::collections::HashSet;

use fastrand::Rng;

use crate::input::Input;
use crate::mutate::Document;
use crate::outcome::Outcome;
use crate::target::Format;

/// The largest number of found inputs. A further one replaces a random one.
const MAX_FOUND: usize = 600;
/// The largest size of a found input, in bytes.
const MAX_SIZE: usize = 8 * 1024;
/// The largest number of outcomes that are remembered.
const MAX_OUTCOMES: usize = 200_000;

/// An input, parsed once.
#[derive(Clone, Debug)]
pub(crate) struct CorpusEntry {
    pub(crate) variant: u8,
    pub(crate) document: Document,
}

/// The inputs that mutations begin with.
#[derive(Debug)]
pub(crate) struct Corpus {
    format: Format,
    seeds: Vec<CorpusEntry>,
    found: Vec<CorpusEntry>,
    outcomes: HashSet<u64>,
}

impl Corpus {
    pub(crate) fn new(format: Format, seeds: &[Input]) -> Self {
        let entry = |seed: &Input| CorpusEntry {
            variant: seed.variant,
            document: Document::read(format, &seed.body),
        };
        Self { format, seeds: seeds.iter().map(entry).collect(), found: Vec::new(), outcomes: HashSet::new() }
    }

    /// Returns a random input: a seed or a found one, with equal probability.
    pub(crate) fn pick(&self, rng: &mut Rng) -> &CorpusEntry {
        let from = if self.found.is_empty() || rng.bool() { &self.seeds } else { &self.found };
        &from[rng.usize(..from.len())]
    }

    /// Keeps `input` if its outcome is new.
    pub(crate) fn learn(&mut self, input: &Input, outcome: &Outcome, rng: &mut Rng) {
        let is_full = self.outcomes.len() >= MAX_OUTCOMES;
        if is_full || !self.outcomes.insert(outcome.signature()) || input.body.len() > MAX_SIZE {
            return;
        }
        let document = Document::read(self.format, &input.body);
        let entry = CorpusEntry { variant: input.variant, document };
        if self.found.len() < MAX_FOUND {
            self.found.push(entry);
        } else {
            let place = rng.usize(..MAX_FOUND);
            self.found[place] = entry;
        }
    }

    /// Returns the number of different outcomes.
    pub(crate) fn outcomes(&self) -> usize {
        self.outcomes.len()
    }
}
