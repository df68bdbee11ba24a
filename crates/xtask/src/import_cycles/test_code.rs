//! Recognises items that exist only in tests.

use syn::punctuated::Punctuated;
use syn::{Attribute, ImplItem, Item, Meta, Token, TraitItem};

/// Returns true if `attributes` restrict an item to test builds.
pub(super) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        if path.is_ident("cfg") {
            return attribute.parse_args::<Meta>().is_ok_and(|predicate| !holds_outside_tests(&predicate));
        }
        // `#[test]`, `#[tokio::test]`
        path.segments.last().is_some_and(|last| last.ident == "test")
    })
}

/// Returns false if `predicate` is never true in a build without `test`.
fn holds_outside_tests(predicate: &Meta) -> bool {
    match predicate {
        Meta::Path(path) => !path.is_ident("test"),
        Meta::List(list) => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            let Ok(parts) = parts else { return true };
            if list.path.is_ident("all") {
                parts.iter().all(holds_outside_tests)
            } else if list.path.is_ident("any") {
                parts.iter().any(holds_outside_tests)
            } else {
                true
            }
        }
        Meta::NameValue(_) => true,
    }
}

/// Returns the attributes of `item`.
pub(super) fn of_item(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns the attributes of `item`.
pub(super) fn of_impl_item(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(item) => &item.attrs,
        ImplItem::Fn(item) => &item.attrs,
        ImplItem::Macro(item) => &item.attrs,
        ImplItem::Type(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns the attributes of `item`.
pub(super) fn of_trait_item(item: &TraitItem) -> &[Attribute] {
    match item {
        TraitItem::Const(item) => &item.attrs,
        TraitItem::Fn(item) => &item.attrs,
        TraitItem::Macro(item) => &item.attrs,
        TraitItem::Type(item) => &item.attrs,
        _ => &[],
    }
}
