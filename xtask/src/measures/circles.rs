//! Import cycles between modules, direct or indirect.

use std::collections::{BTreeMap, BTreeSet};

use super::source::SourceFile;

/// The circles of two modules and more, the largest first.
pub(super) fn find(files: &[SourceFile]) -> Vec<Vec<String>> {
    let modules: BTreeSet<&str> = files.iter().map(|file| file.module.as_str()).collect();
    let imports: BTreeMap<&str, BTreeSet<&str>> = files
        .iter()
        .map(|file| {
            let imported = file
                .imports
                .iter()
                .filter_map(|path| resolve(&modules, &file.module, path));
            (
                file.module.as_str(),
                imported.filter(|other| *other != file.module).collect(),
            )
        })
        .collect();
    let reachable: BTreeMap<&str, BTreeSet<&str>> = modules
        .iter()
        .map(|module| (*module, reach(&imports, module)))
        .collect();
    let mut left = modules.clone();
    let mut circles = Vec::new();
    while let Some(module) = left.pop_first() {
        let is_mutual = |other: &&&str| reachable[module].contains(**other) && reachable[**other].contains(module);
        let mut circle: Vec<&str> = left.iter().filter(is_mutual).copied().collect();
        for other in &circle {
            left.remove(other);
        }
        if !circle.is_empty() {
            circle.insert(0, module);
            circles.push(circle.into_iter().map(str::to_owned).collect());
        }
    }
    circles.sort_by_key(|circle: &Vec<String>| std::cmp::Reverse(circle.len()));
    circles
}

fn reach<'m>(imports: &BTreeMap<&str, BTreeSet<&'m str>>, from: &str) -> BTreeSet<&'m str> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&str> = vec![from];
    while let Some(module) = next.pop() {
        for other in imports.get(module).into_iter().flatten() {
            if seen.insert(*other) {
                next.push(other);
            }
        }
    }
    seen
}

/// The module that an import is of: the longest part of its path that is one.
fn resolve<'m>(modules: &BTreeSet<&'m str>, from: &str, path: &[String]) -> Option<&'m str> {
    let mut at: Vec<&str> = from.split('/').collect();
    let mut segments = path.iter().map(String::as_str).peekable();
    match *segments.peek()? {
        "crate" => {
            at.clear();
            segments.next();
        }
        "self" => {
            segments.next();
        }
        "super" => {
            while segments.next_if_eq(&"super").is_some() {
                at.pop();
            }
        }
        _ => {}
    }
    at.extend(segments);
    while !at.is_empty() {
        if let Some(module) = modules.get(at.join("/").as_str()) {
            return Some(module);
        }
        at.pop();
    }
    None
}
