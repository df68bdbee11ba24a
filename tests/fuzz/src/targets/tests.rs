//! Every target handles its seeds, which are valid, and a short campaign.

use super::*;
use crate::campaign::{Campaign, run, try_input};

/// The inputs of a short campaign.
const SHORT: u64 = 3000;
const MEMORY: u64 = 1024 * 1024 * 1024;

#[test]
fn seeds_are_valid_and_reach_different_outcomes() {
    for target in targets() {
        let outcome =
            |input| try_input(&target, input).unwrap_or_else(|error| panic!("{}: {error}", target.name));
        let mut outcomes: Vec<u64> = target.seeds.iter().map(|seed| outcome(seed).signature()).collect();
        outcomes.sort_unstable();
        outcomes.dedup();
        assert!(outcomes.len() >= 2, "{}: {} outcomes", target.name, outcomes.len());
    }
}

#[test]
fn a_short_campaign_of_each_target_finds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for target in targets() {
        let (name, seeds) = (target.name, target.seeds.len());
        let folder = folder.path().to_owned();
        let campaign = Campaign { inputs: SHORT, time: None, seed: 7, memory: MEMORY, folder };
        let report = run(target, campaign).unwrap();
        assert_eq!(report.failure, None, "{name}");
        // Mutations lead further than the seeds.
        assert!(report.outcomes > seeds.min(30) * 2, "{name}: {} outcomes", report.outcomes);
    }
}
