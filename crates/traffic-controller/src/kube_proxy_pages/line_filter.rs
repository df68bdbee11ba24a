//! Selects lines of a page while it arrives.

use memchr::memchr;

/// Keeps the lines that `keep` selects. A page of kube-proxy has 0.1 MB, and few of its lines are needed.
pub(super) struct LineFilter<K> {
    keep: K,
    kept: Vec<u8>,
    /// The begin of a line whose end has not arrived.
    begun: Vec<u8>,
}

impl<K: Fn(&[u8]) -> bool> LineFilter<K> {
    pub(super) fn new(keep: K) -> Self {
        Self { keep, kept: Vec::new(), begun: Vec::new() }
    }

    /// Adds the next part of the page.
    pub(super) fn add(&mut self, mut part: &[u8]) {
        while let Some(end) = memchr(b'\n', part) {
            let (line, rest) = part.split_at(end + 1);
            part = rest;
            if self.begun.is_empty() {
                self.add_line(line);
            } else {
                let mut begun = std::mem::take(&mut self.begun);
                begun.extend_from_slice(line);
                self.add_line(&begun);
            }
        }
        self.begun.extend_from_slice(part);
    }

    fn add_line(&mut self, line: &[u8]) {
        if (self.keep)(line) {
            self.kept.extend_from_slice(line);
        }
    }

    /// Returns the lines that were kept, at the end of the page.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let last = std::mem::take(&mut self.begun);
        self.add_line(&last);
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_however_the_page_is_divided() {
        let page = b"a 1\n# b\n\nb 2\na 3\nb 4";
        for size in 1..=page.len() {
            let mut filter = LineFilter::new(|line: &[u8]| !line.starts_with(b"b"));
            page.chunks(size).for_each(|part| filter.add(part));
            assert_eq!(filter.finish(), b"a 1\n# b\n\na 3\n", "in parts of {size}");
        }
    }
}
