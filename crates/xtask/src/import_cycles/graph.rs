//! Cycles in the graph of imports.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;

use super::imports::Imports;
use super::modules::ModuleTree;

/// Files that import each other, directly or through others.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ImportCycle {
    /// The names that are taken, by the importing and the defining file.
    imports: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

impl fmt::Display for ImportCycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files import each other", self.imports.len())?;
        for (file, imported) in &self.imports {
            write!(f, "\n  {file}")?;
            for (from, names) in imported {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                write!(f, "\n    imports from {from}: {}", names.join(", "))?;
            }
        }
        Ok(())
    }
}

/// Returns the groups of files that import each other, the largest first.
pub(super) fn cycles(tree: &ModuleTree, imports: &Imports) -> Vec<ImportCycle> {
    let mut graph = DiGraph::<(), ()>::new();
    let nodes: Vec<_> = tree.files.iter().map(|_| graph.add_node(())).collect();
    for (from, to) in imports.keys() {
        graph.add_edge(nodes[*from], nodes[*to], ());
    }
    let name = |file: usize| tree.files[file].path.display().to_string();
    let mut cycles = Vec::new();
    for component in tarjan_scc(&graph) {
        let files: BTreeSet<usize> = component.iter().map(|node| node.index()).collect();
        if files.len() == 1 {
            continue;
        }
        let mut cycle = ImportCycle { imports: BTreeMap::new() };
        for ((from, to), names) in imports {
            if files.contains(from) && files.contains(to) {
                cycle.imports.entry(name(*from)).or_default().insert(name(*to), names.clone());
            }
        }
        cycles.push(cycle);
    }
    cycles.sort_by_key(|cycle| std::cmp::Reverse(cycle.imports.len()));
    cycles
}
