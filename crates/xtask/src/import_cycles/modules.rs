//! The modules of a crate and the resolution of paths in them.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use syn::{Attribute, Expr, ExprLit, Item, ItemMod, Lit, Meta};

use super::names::{Binding, Definition, FileId, ModuleId, Names};
use super::test_code::is_test_only;

/// A parsed source file.
pub(super) struct SourceFile {
    pub(super) path: PathBuf,
    pub(super) items: Vec<Item>,
    /// The module that this file is the body of.
    pub(super) module: ModuleId,
}

/// A module: a file, or an inline module in one.
#[derive(Debug, Default)]
pub(super) struct Module {
    pub(super) parent: Option<ModuleId>,
    pub(super) names: Names,
}

/// The files and modules of a crate, without those that exist only in tests.
pub(super) struct ModuleTree {
    pub(super) files: Vec<SourceFile>,
    pub(super) modules: Vec<Module>,
}

/// The meaning of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target<'a> {
    Module(ModuleId),
    Item(&'a Definition),
}

type Read<'a> = &'a dyn Fn(&Path) -> io::Result<String>;

impl ModuleTree {
    pub(super) fn load(root: &Path, read: Read<'_>) -> Result<Self> {
        let mut tree = Self { files: Vec::new(), modules: Vec::new() };
        let text = read(root).with_context(|| format!("read {}", root.display()))?;
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        tree.add_file(None, root.to_owned(), &folder, &text, read)?;
        Ok(tree)
    }

    /// Adds a file and all files below it. `folder` is where the files of its modules are.
    fn add_file(
        &mut self,
        parent: Option<ModuleId>,
        path: PathBuf,
        folder: &Path,
        text: &str,
        read: Read<'_>,
    ) -> Result<ModuleId> {
        let syntax = syn::parse_file(text).with_context(|| format!("parse {}", path.display()))?;
        let module = self.modules.len();
        self.modules.push(Module { parent, names: Names::default() });
        let file = self.files.len();
        self.files.push(SourceFile { path, items: Vec::new(), module });
        self.add_items(module, file, folder, &syntax.items, read)?;
        self.files[file].items = syntax.items;
        Ok(module)
    }

    fn add_items(
        &mut self,
        module: ModuleId,
        file: FileId,
        folder: &Path,
        items: &[Item],
        read: Read<'_>,
    ) -> Result<()> {
        for item in items {
            let Item::Mod(item) = item else {
                self.modules[module].names.declare(item, file);
                continue;
            };
            if is_test_only(&item.attrs) {
                continue;
            }
            let name = item.ident.to_string();
            let below = folder.join(&name);
            let child = match &item.content {
                Some((_, items)) => {
                    let child = self.modules.len();
                    self.modules.push(Module { parent: Some(module), names: Names::default() });
                    self.add_items(child, file, &below, items, read)?;
                    child
                }
                None => {
                    let (path, folder, text) = self.locate(item, file, folder, read)?;
                    self.add_file(Some(module), path, &folder, &text, read)?
                }
            };
            self.modules[module].names.bind(name, Binding::Module(child));
        }
        Ok(())
    }

    /// Returns the file of `item`, the folder of its modules and its text.
    fn locate(
        &self,
        item: &ItemMod,
        file: FileId,
        folder: &Path,
        read: Read<'_>,
    ) -> Result<(PathBuf, PathBuf, String)> {
        let declaring = &self.files[file].path;
        let below = folder.join(item.ident.to_string());
        let candidates = match item.attrs.iter().find_map(path_attribute) {
            Some(path) => {
                let path = declaring.parent().unwrap_or(Path::new("")).join(path);
                let folder = path.parent().unwrap_or(Path::new("")).to_owned();
                vec![(path, folder)]
            }
            None => vec![(below.with_added_extension("rs"), below.clone()), (below.join("mod.rs"), below)],
        };
        for (path, folder) in candidates {
            match read(&path) {
                Ok(text) => return Ok((path, folder, text)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(anyhow!(error).context(format!("read {}", path.display()))),
            }
        }
        Err(anyhow!("no file for the module {} of {}", item.ident, declaring.display()))
    }

    /// Returns the module `name` that `module` declares.
    pub(super) fn child(&self, module: ModuleId, name: &str) -> Option<ModuleId> {
        self.modules[module].names.bindings.get(name)?.iter().find_map(|binding| match binding {
            Binding::Module(child) => Some(*child),
            _ => None,
        })
    }

    /// Returns true if `module` is `ancestor` or below it.
    pub(super) fn is_within(&self, module: ModuleId, ancestor: ModuleId) -> bool {
        let mut above = Some(module);
        while let Some(current) = above {
            if current == ancestor {
                return true;
            }
            above = self.modules[current].parent;
        }
        false
    }

    /// Returns what `path` means in `module`, inside blocks that declare `blocks` (the innermost last).
    ///
    /// A name can have several meanings (a module and a function, for example). The result is empty for paths into
    /// other crates.
    pub(super) fn resolve<'a>(
        &'a self,
        module: ModuleId,
        blocks: &[&'a Names],
        path: &[String],
    ) -> Vec<Target<'a>> {
        Resolution { tree: self, pending: Vec::new() }.path(module, blocks, path)
    }
}

/// One resolution of a path.
struct Resolution<'a> {
    tree: &'a ModuleTree,
    /// The lookups in progress. An import can refer to its own name: `mod run; use run::run;`.
    pending: Vec<(*const Names, String)>,
}

impl<'a> Resolution<'a> {
    fn path(&mut self, module: ModuleId, blocks: &[&'a Names], path: &[String]) -> Vec<Target<'a>> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let mut targets = match first.as_str() {
            "crate" => vec![Target::Module(0)],
            "self" => vec![Target::Module(module)],
            "super" => self.parent(module).into_iter().collect(),
            name => self.in_scope(module, blocks, name),
        };
        for name in rest {
            let prefixes = std::mem::take(&mut targets);
            for prefix in prefixes {
                match prefix {
                    Target::Module(module) if name == "super" => targets.extend(self.parent(module)),
                    Target::Module(module) => {
                        targets.extend(self.lookup(module, &self.tree.modules[module].names, name));
                    }
                    Target::Item(item) if item.has_members => targets.push(prefix),
                    Target::Item(_) => {}
                }
            }
        }
        targets.sort();
        targets.dedup();
        targets
    }

    fn parent(&self, module: ModuleId) -> Option<Target<'a>> {
        self.tree.modules[module].parent.map(Target::Module)
    }

    fn in_scope(&mut self, module: ModuleId, blocks: &[&'a Names], name: &str) -> Vec<Target<'a>> {
        for names in blocks.iter().rev() {
            if names.bindings.contains_key(name) {
                return self.lookup(module, names, name);
            }
        }
        let mut targets = self.lookup(module, &self.tree.modules[module].names, name);
        targets.extend(blocks.iter().flat_map(|names| self.through_globs(module, names, name)));
        targets
    }

    /// Returns what `name` means among `names`, which are declared in `module`.
    fn lookup(&mut self, module: ModuleId, names: &'a Names, name: &str) -> Vec<Target<'a>> {
        let lookup = (std::ptr::from_ref(names), name.to_owned());
        let follow_imports = !self.pending.contains(&lookup);
        self.pending.push(lookup);
        let mut targets = Vec::new();
        for binding in names.bindings.get(name).into_iter().flatten() {
            match binding {
                Binding::Module(module) => targets.push(Target::Module(*module)),
                Binding::Item(definition) => targets.push(Target::Item(definition)),
                Binding::Import(path) if follow_imports => targets.extend(self.path(module, &[], path)),
                Binding::Import(_) => {}
            }
        }
        if follow_imports && !names.bindings.contains_key(name) {
            targets.extend(self.through_globs(module, names, name));
        }
        self.pending.pop();
        targets
    }

    fn through_globs(&mut self, module: ModuleId, names: &'a Names, name: &str) -> Vec<Target<'a>> {
        let mut targets = Vec::new();
        for glob in &names.globs {
            for target in self.path(module, &[], glob) {
                match target {
                    Target::Module(module) => {
                        targets.extend(self.lookup(module, &self.tree.modules[module].names, name));
                    }
                    Target::Item(item) if item.variants.iter().any(|variant| variant == name) => {
                        targets.push(target);
                    }
                    Target::Item(_) => {}
                }
            }
        }
        targets
    }
}

/// Returns the file that `#[path = "file"]` names.
fn path_attribute(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(meta) = &attribute.meta else { return None };
    let Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) = &meta.value else { return None };
    meta.path.is_ident("path").then(|| path.value())
}
