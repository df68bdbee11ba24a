//! Paths of nodes.

/// Returns the paths of the nodes above `path`, from the top.
pub(super) fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.char_indices().skip(1).filter(|(_, char)| *char == '/').map(|(at, _)| &path[..at])
}

/// Returns a base path with a slash at its start and none at its end. `/` becomes empty.
///
/// # Errors
/// Fails if ZooKeeper does not accept a part of it.
pub(super) fn base(path: &str) -> Result<String, String> {
    let trimmed = path.trim_matches('/');
    if trimmed.is_empty() {
        return Ok(String::new());
    }
    check_parts(trimmed)?;
    Ok(format!("/{trimmed}"))
}

/// Checks names with slashes between them.
pub(super) fn check_parts(path: &str) -> Result<(), String> {
    path.split('/').try_for_each(check_name)
}

/// Checks the name of a node (`PathUtils.validatePath` of ZooKeeper).
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_invalid = |char: char| matches!(char, '/' | '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}');
    if name.is_empty() || name == "." || name == ".." || name.contains(is_invalid) {
        return Err(format!("{name:?} cannot be the name of a node of ZooKeeper"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_begin_at_the_top() {
        assert_eq!(parents("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b"]);
        assert_eq!(parents("/a").count(), 0);
    }

    #[test]
    fn names_are_checked() {
        for good in ["a", "10.0.0.1:80", "dubbo%3A%2F%2F", "...", "ü"] {
            assert_eq!(check_name(good), Ok(()));
        }
        for bad in ["", ".", "..", "a/b", "a\0", "a\nb", "\u{85}", "\u{fff0}"] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        assert_eq!(base("services/"), Ok("/services".to_owned()));
        assert_eq!(base("/"), Ok(String::new()));
        assert!(base("/a//b").is_err());
    }
}
