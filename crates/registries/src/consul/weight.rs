//! The weights that Consul stores.

/// Consul's weights of passing instances are whole numbers from 1 on (`ValidateWeights` in `agent/structs/structs.go`).
pub(super) fn check(weight: f64) -> Result<(), String> {
    match (1.0..=65_535.0).contains(&weight) && weight.fract() == 0.0 {
        true => Ok(()),
        false => {
            Err(format!("the weight {weight} is not a whole number from 1 to 65535, as those of Consul are"))
        }
    }
}
