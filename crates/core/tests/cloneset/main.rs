//! Properties of the plans of CloneSets, in random interleavings.

mod model;
mod properties;
