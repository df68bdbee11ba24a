//! Text for messages.

/// Returns the first three names, and the number of the others.
pub(super) fn join_names(all: &[String]) -> String {
    join_first(all, String::clone)
}

/// Returns the names of the first three, and the number of the others.
pub(super) fn join_first<T>(all: &[T], name: impl Fn(&T) -> String) -> String {
    const SHOWN: usize = 3;
    let mut text = all.iter().take(SHOWN).map(name).collect::<Vec<_>>().join(", ");
    if all.len() > SHOWN {
        text += &format!(" and {} more", all.len() - SHOWN);
    }
    text
}

/// Returns a number with a noun: `1 slice`, `2 slices`.
pub(super) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
