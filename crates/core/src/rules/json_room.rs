//! Statuses and annotations hold a bounded number of bytes.

use serde::Serialize;

/// How many bytes of JSON there is room for yet. Not to be copied: what is taken would be taken of the copy alone.
#[derive(Debug)]
pub struct JsonRoom(pub usize);

impl JsonRoom {
    /// Takes so many bytes, if there are; says whether there were.
    pub fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }

    /// Takes what `item` needs in a list ([`bytes_in_list`](Self::bytes_in_list)), if it is there; says whether it was.
    pub fn fits(&mut self, item: &impl Serialize) -> bool {
        self.take(Self::bytes_in_list(item))
    }

    /// How many bytes `item` takes as JSON, with a comma. What can't be written as JSON fits nowhere.
    #[must_use]
    pub fn bytes_in_list(item: &impl Serialize) -> usize {
        serde_json::to_string(item).map_or(usize::MAX / 2, |text| text.len() + 1)
    }
}
