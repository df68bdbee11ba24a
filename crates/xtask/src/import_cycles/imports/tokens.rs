//! The paths in the arguments of macros and attributes.

use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::{Lit, Path};

/// Returns everything in `tokens` that looks like a path. With `strings_are_paths`, string literals that contain a path
/// count too.
pub(super) fn paths(tokens: TokenStream, strings_are_paths: bool) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    collect(tokens, strings_are_paths, &mut found);
    found
}

fn collect(tokens: TokenStream, strings_are_paths: bool, found: &mut Vec<Vec<String>>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Group(group) => collect(group.stream(), strings_are_paths, found),
            TokenTree::Literal(literal) if strings_are_paths => {
                if let Lit::Str(text) = Lit::new(literal.clone())
                    && let Ok(path) = text.parse::<Path>()
                {
                    found.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
                }
            }
            TokenTree::Ident(first) => {
                // `$crate` is the only macro variable that begins a known path.
                let starts_path = first == "crate" || !continues(&tokens[..at - 1]);
                let mut path = vec![first.to_string()];
                while is_separator(&tokens, at)
                    && let Some(TokenTree::Ident(next)) = tokens.get(at + 2)
                {
                    path.push(next.to_string());
                    at += 3;
                }
                if starts_path {
                    found.push(path);
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Returns true if `::` is at this position.
fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    matches!(
        (tokens.get(at), tokens.get(at + 1)),
        (Some(TokenTree::Punct(first)), Some(TokenTree::Punct(second)))
            if first.as_char() == ':' && first.spacing() == Spacing::Joint && second.as_char() == ':'
    )
}

/// Returns true if a name after `before` is no path of its own: a field, a method, a lifetime, a macro variable, or the
/// rest of a path.
fn continues(before: &[TokenTree]) -> bool {
    let punctuation = |token: &TokenTree| match token {
        TokenTree::Punct(punctuation) => Some(punctuation.as_char()),
        _ => None,
    };
    let mut backwards = before.iter().rev().map(punctuation);
    match (backwards.next().flatten(), backwards.next().flatten()) {
        (Some('.'), previous) => previous != Some('.'),
        (Some(':'), previous) => previous == Some(':'),
        (Some('\'' | '$'), _) => true,
        _ => false,
    }
}
