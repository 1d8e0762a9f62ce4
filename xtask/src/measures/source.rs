//! The sources, parsed.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, FnArg, GenericArgument, Item, PathArguments, Signature, Type, UseTree};

use super::COMMENT_COLUMNS;

/// A file of `src/`, without what is compiled for tests alone.
#[derive(Debug, Default)]
pub(super) struct SourceFile {
    /// Below `src/`, without the extension: `pattern/bucket/read`.
    pub(super) module: String,
    pub(super) lines: usize,
    pub(super) functions: Vec<Function>,
    /// Names of its structs, enums, traits and type aliases.
    pub(super) types: Vec<String>,
    /// Functions with a parameter that is a tuple.
    pub(super) tuple_parameters: Vec<String>,
    /// Functions whose signature has an `Option` of an `Option`, or a `Result` of a `Result`.
    pub(super) nested_types: Vec<String>,
    /// Paths of its `use` declarations, by their segments.
    pub(super) imports: Vec<Vec<String>>,
    text: String,
}

/// A function with a body.
#[derive(Debug)]
pub(super) struct Function {
    /// Its file and first line.
    pub(super) place: String,
    /// Of the body.
    pub(super) lines: usize,
}

impl SourceFile {
    /// The comment lines that are too long, by file and line.
    pub(super) fn long_comments(&self) -> Vec<String> {
        let lines = self.text.lines().enumerate();
        let long =
            lines.filter(|(_, line)| line.trim_start().starts_with("//") && line.chars().count() > COMMENT_COLUMNS);
        long.map(|(number, _)| format!("{}.rs:{}", self.module, number + 1))
            .collect()
    }
}

/// Reads all sources below a folder.
pub(super) fn read(root: &Path) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    below(root, root, &mut files)?;
    files.sort_by(|one, other| one.module.cmp(&other.module));
    Ok(files)
}

fn below(root: &Path, folder: &Path, files: &mut Vec<SourceFile>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests");
        if is_test {
            continue;
        }
        if path.is_dir() {
            below(root, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let module = path.strip_prefix(root)?.with_extension("").display().to_string();
            files.push(parse(module, fs::read_to_string(&path)?).with_context(|| path.display().to_string())?);
        }
    }
    Ok(())
}

fn parse(module: String, text: String) -> Result<SourceFile> {
    let mut parsed = syn::parse_file(&text)?;
    let is_for_tests = |item: &Item| attributes(item).iter().any(is_test_attribute);
    let lines_for_tests: usize = parsed.items.iter().filter(|item| is_for_tests(item)).map(lines).sum();
    parsed.items.retain(|item| !is_for_tests(item));
    let mut file = SourceFile {
        module,
        lines: text.lines().count() - lines_for_tests,
        text,
        ..SourceFile::default()
    };
    file.visit_file(&parsed);
    Ok(file)
}

fn lines(item: &Item) -> usize {
    item.span().end().line + 1 - item.span().start().line
}

fn is_test_attribute(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute
            .parse_args::<syn::Path>()
            .is_ok_and(|condition| condition.is_ident("test"))
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        _ => &[],
    }
}

impl SourceFile {
    fn function(&mut self, signature: &Signature, body: &syn::Block) {
        let place = format!(
            "{}.rs:{} {}",
            self.module,
            signature.span().start().line,
            signature.ident
        );
        let types = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(parameter) => Some(parameter.ty.as_ref()),
            FnArg::Receiver(_) => None,
        });
        if types.clone().any(is_tuple) {
            self.tuple_parameters.push(place.clone());
        }
        let result = match &signature.output {
            syn::ReturnType::Type(_, result) => Some(result.as_ref()),
            syn::ReturnType::Default => None,
        };
        if types.chain(result).any(is_nested) {
            self.nested_types.push(place.clone());
        }
        let lines = body.span().end().line - body.span().start().line;
        self.functions.push(Function { place, lines });
    }

    fn import(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.import(&with(&path.ident), &path.tree),
            UseTree::Name(name) => self.imports.push(with(&name.ident)),
            UseTree::Rename(name) => self.imports.push(with(&name.ident)),
            UseTree::Glob(_) => self.imports.push(before.to_vec()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(before, tree)),
        }
    }
}

impl<'ast> Visit<'ast> for SourceFile {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.types.push(item.ident.to_string());
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.types.push(item.ident.to_string());
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.types.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.types.push(item.ident.to_string());
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&[], &item.tree);
    }
}

fn is_tuple(parameter: &Type) -> bool {
    match parameter {
        Type::Tuple(tuple) => tuple.elems.len() > 1,
        Type::Reference(reference) => is_tuple(&reference.elem),
        _ => false,
    }
}

/// Whether it is an `Option` of an `Option` or a `Result` of a `Result`, or has one.
fn is_nested(outer: &Type) -> bool {
    let outer_name = name(outer);
    let is_same = |inner: &Type| name(inner).is_some() && name(inner) == outer_name;
    arguments(outer)
        .into_iter()
        .any(|inner| is_same(inner) || is_nested(inner))
}

fn name(of: &Type) -> Option<String> {
    let Type::Path(path) = of else { return None };
    let name = path.path.segments.last()?.ident.to_string();
    ["Option", "Result"].contains(&name.as_str()).then_some(name)
}

fn arguments(of: &Type) -> Vec<&Type> {
    let Type::Path(path) = of else { return Vec::new() };
    match path.path.segments.last().map(|segment| &segment.arguments) {
        Some(PathArguments::AngleBracketed(arguments)) => arguments
            .args
            .iter()
            .filter_map(|argument| match argument {
                GenericArgument::Type(argument) => Some(argument),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}
