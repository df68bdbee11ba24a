//! The imports of each file of a crate.

mod tokens;

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{
    Attribute, Block, ExprClosure, ExprPath, Field, ImplItem, ImplItemFn, Item, ItemFn, ItemMod, ItemUse,
    Local, Macro, Meta, PatIdent, Path, Stmt, TraitItem, TraitItemFn, Variant, Visibility,
};

use super::modules::{ModuleTree, Target};
use super::names::{FileId, Import, ModuleId, Names, imports, is_reexport};
use super::test_code::{is_test_only, of_impl_item, of_item, of_trait_item};

/// The names that one file takes from another, by the importing and the defining file.
pub(super) type Imports = BTreeMap<(FileId, FileId), BTreeSet<String>>;

/// Returns the imports of all files of `tree`.
pub(super) fn collect(tree: &ModuleTree) -> Imports {
    let mut found = Imports::new();
    for (file, source) in tree.files.iter().enumerate() {
        let blocks: Vec<Names> = Vec::new();
        let mut collector =
            Collector { tree, file, module: source.module, blocks, locals: Vec::new(), found };
        for item in &source.items {
            collector.visit_item(item);
        }
        found = collector.found;
    }
    found
}

/// Walks through one file.
struct Collector<'t> {
    tree: &'t ModuleTree,
    file: FileId,
    /// The innermost module.
    module: ModuleId,
    /// The names that the enclosing blocks declare.
    blocks: Vec<Names>,
    /// The variables of the enclosing functions.
    locals: Vec<BTreeSet<String>>,
    found: Imports,
}

impl Collector<'_> {
    /// Records the files that define what `path` means. With `reexport`, items below this module are left out.
    fn record(&mut self, path: &[String], reexport: bool) {
        let blocks: Vec<&Names> = self.blocks.iter().collect();
        let mut taken = Vec::new();
        for target in self.tree.resolve(self.module, &blocks, path) {
            let Target::Item(item) = target else { continue };
            let below = self.tree.is_within(self.tree.files[item.file].module, self.module);
            if item.file != self.file && !(reexport && below) {
                taken.push((item.file, item.name.clone()));
            }
        }
        for (file, name) in taken {
            self.found.entry((self.file, file)).or_default().insert(name);
        }
    }

    /// Records a path of an expression. A single lower-case name can be a variable.
    fn record_value(&mut self, path: &[String]) {
        if let [name] = path
            && self.locals.iter().any(|locals| locals.contains(name))
        {
            return;
        }
        self.record(path, false);
    }

    fn record_tokens(&mut self, tokens: proc_macro2::TokenStream, strings_are_paths: bool) {
        for path in tokens::paths(tokens, strings_are_paths) {
            self.record_value(&path);
        }
    }

    /// Visits a function. Its variables hide items of the same name.
    fn in_function(&mut self, variables: Variables, walk: impl FnOnce(&mut Self)) {
        self.locals.push(variables.0);
        walk(self);
        self.locals.pop();
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test_only(of_item(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if !is_test_only(of_impl_item(item)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        if !is_test_only(of_trait_item(item)) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast Field) {
        if !is_test_only(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'ast Variant) {
        if !is_test_only(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_local(&mut self, local: &'ast Local) {
        if !is_test_only(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        // A module in a file of its own is visited with that file.
        let Some((_, items)) = &item.content else { return };
        let outer = self.module;
        self.module = self.tree.child(outer, &item.ident.to_string()).unwrap_or(outer);
        items.iter().for_each(|item| self.visit_item(item));
        self.module = outer;
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let reexport = is_reexport(&item.vis);
        for Import { path, .. } in imports(item) {
            self.record(&path, reexport);
        }
    }

    fn visit_block(&mut self, block: &'ast Block) {
        let mut names = Names::default();
        for statement in &block.stmts {
            if let Stmt::Item(item) = statement {
                names.declare(item, self.file);
            }
        }
        self.blocks.push(names);
        visit::visit_block(self, block);
        self.blocks.pop();
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        let variables = Variables::of(|variables| variables.visit_item_fn(function));
        self.in_function(variables, |this| visit::visit_item_fn(this, function));
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        let variables = Variables::of(|variables| variables.visit_impl_item_fn(function));
        self.in_function(variables, |this| visit::visit_impl_item_fn(this, function));
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        let variables = Variables::of(|variables| variables.visit_trait_item_fn(function));
        self.in_function(variables, |this| visit::visit_trait_item_fn(this, function));
    }

    fn visit_expr_closure(&mut self, closure: &'ast ExprClosure) {
        let variables = Variables::of(|variables| variables.visit_expr_closure(closure));
        self.in_function(variables, |this| visit::visit_expr_closure(this, closure));
    }

    fn visit_expr_path(&mut self, path: &'ast ExprPath) {
        if path.qself.is_none() && path.path.get_ident().is_some() {
            self.record_value(&segments(&path.path));
        } else {
            visit::visit_expr_path(self, path);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        self.record(&segments(path), false);
        visit::visit_path(self, path);
    }

    fn visit_pat_ident(&mut self, pattern: &'ast PatIdent) {
        let name = pattern.ident.to_string();
        if !is_variable(&name) {
            self.record(&[name], false);
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        self.record_tokens(call.tokens.clone(), false);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        // `#[serde(with = "path")]`, `#[schemars(with = "path")]`, `#[arg(value_parser = path)]`
        if let Meta::List(list) = &attribute.meta {
            self.record_tokens(list.tokens.clone(), true);
        }
    }

    /// A path in `pub(in path)` names no item.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

/// The variables that a function binds.
struct Variables(BTreeSet<String>);

impl Variables {
    fn of(walk: impl FnOnce(&mut Self)) -> Self {
        let mut variables = Self(BTreeSet::new());
        walk(&mut variables);
        variables
    }
}

impl<'ast> Visit<'ast> for Variables {
    fn visit_pat_ident(&mut self, pattern: &'ast PatIdent) {
        let name = pattern.ident.to_string();
        if is_variable(&name) {
            self.0.insert(name);
        }
        visit::visit_pat_ident(self, pattern);
    }
}

/// Returns true if a pattern with this name binds a variable, and false if it names a constant or a variant.
fn is_variable(name: &str) -> bool {
    name.starts_with(|first: char| first.is_lowercase() || first == '_')
}

fn segments(path: &Path) -> Vec<String> {
    let leading = path.leading_colon.as_ref().map(|_| String::new());
    leading.into_iter().chain(path.segments.iter().map(|segment| segment.ident.to_string())).collect()
}
