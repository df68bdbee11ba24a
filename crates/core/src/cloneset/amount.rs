//! Numbers of pods.

/// A number of pods, or a share of the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// A number of pods.
    Count(u32),
    /// A share of the replicas, in percent.
    Percent(u32),
}

impl Amount {
    /// Returns the number of pods of `replicas`, rounded up.
    #[must_use]
    pub fn rounded_up(self, replicas: u32) -> u32 {
        match self {
            Amount::Count(count) => count,
            Amount::Percent(percent) => {
                let count = (u64::from(percent) * u64::from(replicas)).div_ceil(100);
                u32::try_from(count).unwrap_or(u32::MAX)
            }
        }
    }

    /// Returns the number of pods of `replicas`, rounded down.
    #[must_use]
    pub fn rounded_down(self, replicas: u32) -> u32 {
        match self {
            Amount::Count(count) => count,
            Amount::Percent(percent) => {
                let count = u64::from(percent) * u64::from(replicas) / 100;
                u32::try_from(count).unwrap_or(u32::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Amount::{Count, Percent};

    #[test]
    fn percentages_are_rounded() {
        assert_eq!((Percent(20).rounded_up(4), Percent(20).rounded_down(4)), (1, 0));
        assert_eq!((Percent(100).rounded_up(4), Percent(0).rounded_up(4)), (4, 0));
        assert_eq!((Count(7).rounded_up(4), Count(7).rounded_down(4)), (7, 7));
        assert_eq!(Percent(u32::MAX).rounded_up(u32::MAX), u32::MAX);
    }
}
