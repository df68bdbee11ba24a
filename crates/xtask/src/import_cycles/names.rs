//! The names that a module or a block declares.

use std::collections::BTreeMap;

use syn::{Item, ItemUse, UseTree, Visibility};

use super::test_code::{is_test_only, of_item};

/// The position of a file in [`ModuleTree::files`](super::modules::ModuleTree).
pub(super) type FileId = usize;

/// The position of a module in [`ModuleTree::modules`](super::modules::ModuleTree).
pub(super) type ModuleId = usize;

/// A path as a list of its segments. A leading `::` is an empty first segment.
pub(super) type Segments = Vec<String>;

/// An item and the file that defines it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) file: FileId,
    /// True for types and traits: a path can continue after their name.
    pub(super) has_members: bool,
    /// The variants of an enum.
    pub(super) variants: Vec<String>,
}

/// What a name stands for.
#[derive(Debug)]
pub(super) enum Binding {
    Module(ModuleId),
    Item(Definition),
    Import(Segments),
}

/// One name of a `use` declaration.
#[derive(Debug)]
pub(super) struct Import {
    pub(super) path: Segments,
    /// The name in scope; `None` for a glob.
    pub(super) name: Option<String>,
}

/// The names that a module or a block declares.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) bindings: BTreeMap<String, Vec<Binding>>,
    /// The paths of `use path::*`.
    pub(super) globs: Vec<Segments>,
}

impl Names {
    /// Adds the names that `item` of the file `file` declares. Modules and test code are left out.
    pub(super) fn declare(&mut self, item: &Item, file: FileId) {
        if is_test_only(of_item(item)) {
            return;
        }
        let variants = Vec::new();
        match item {
            Item::Use(item) => {
                for import in imports(item) {
                    match import.name {
                        Some(name) => self.bind(name, Binding::Import(import.path)),
                        None => self.globs.push(import.path),
                    }
                }
            }
            Item::Enum(item) => {
                let variants = item.variants.iter().map(|variant| variant.ident.to_string()).collect();
                self.define(item.ident.to_string(), file, true, variants);
            }
            Item::Struct(item) => self.define(item.ident.to_string(), file, true, variants),
            Item::Trait(item) => self.define(item.ident.to_string(), file, true, variants),
            Item::TraitAlias(item) => self.define(item.ident.to_string(), file, true, variants),
            Item::Type(item) => self.define(item.ident.to_string(), file, true, variants),
            Item::Union(item) => self.define(item.ident.to_string(), file, true, variants),
            Item::Const(item) => self.define(item.ident.to_string(), file, false, variants),
            Item::Static(item) => self.define(item.ident.to_string(), file, false, variants),
            Item::Fn(item) => self.define(item.sig.ident.to_string(), file, false, variants),
            Item::Macro(item) => {
                if let Some(name) = &item.ident {
                    self.define(name.to_string(), file, false, variants);
                }
            }
            _ => {}
        }
    }

    pub(super) fn bind(&mut self, name: String, binding: Binding) {
        self.bindings.entry(name).or_default().push(binding);
    }

    fn define(&mut self, name: String, file: FileId, has_members: bool, variants: Vec<String>) {
        self.bind(name.clone(), Binding::Item(Definition { name, file, has_members, variants }));
    }
}

/// Returns the names of a `use` declaration.
pub(super) fn imports(item: &ItemUse) -> Vec<Import> {
    let mut found = Vec::new();
    let prefix = if item.leading_colon.is_some() { vec![String::new()] } else { Vec::new() };
    flatten(&item.tree, prefix, &mut found);
    found
}

fn flatten(tree: &UseTree, mut path: Segments, found: &mut Vec<Import>) {
    match tree {
        UseTree::Path(tree) => {
            path.push(tree.ident.to_string());
            flatten(&tree.tree, path, found);
        }
        UseTree::Group(tree) => tree.items.iter().for_each(|item| flatten(item, path.clone(), found)),
        UseTree::Glob(_) => found.push(Import { path, name: None }),
        UseTree::Name(tree) => {
            // `use a::{self}` imports `a`.
            if tree.ident != "self" {
                path.push(tree.ident.to_string());
            }
            let name = path.last().cloned();
            found.push(Import { path, name });
        }
        UseTree::Rename(tree) => {
            if tree.ident != "self" {
                path.push(tree.ident.to_string());
            }
            found.push(Import { path, name: Some(tree.rename.to_string()) });
        }
    }
}

/// Returns true if a `use` with this visibility is a re-export.
pub(super) fn is_reexport(visibility: &Visibility) -> bool {
    match visibility {
        Visibility::Public(_) => true,
        Visibility::Restricted(restricted) => !restricted.path.is_ident("self"),
        Visibility::Inherited => false,
    }
}
