//! The size limits of statuses and annotations.

use serde::Serialize;

/// The number of bytes of JSON that are left. It is not `Copy`: a copy would be counted separately.
#[derive(Debug)]
pub struct JsonRoom(pub usize);

impl JsonRoom {
    /// Takes `bytes` if they are left. Returns whether they were.
    pub fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }

    /// Takes the size of `item` in a list ([`bytes_in_list`](Self::bytes_in_list)) if it is left. Returns whether it
    /// was.
    pub fn fits(&mut self, item: &impl Serialize) -> bool {
        self.take(Self::bytes_in_list(item))
    }

    /// Returns the size of `item` as JSON with a comma. A value that cannot be serialized does not fit anywhere.
    #[must_use]
    pub fn bytes_in_list(item: &impl Serialize) -> usize {
        serde_json::to_string(item).map_or(usize::MAX / 2, |text| text.len() + 1)
    }
}
