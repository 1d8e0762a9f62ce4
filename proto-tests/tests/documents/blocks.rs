//! The contents of a document: fenced blocks with their commands, and code in running text.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use proto_tests::paths;
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// What a block is, by the word behind its fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Commands for a shell, one a line.
    Sh,
    /// Words for mongosh.
    Js,
    /// A configuration of mongoshape.
    Toml,
    /// What is printed, or a picture.
    Text,
    /// Anything else.
    Other,
}

/// A fenced block.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    /// Where it begins, for a message.
    pub(crate) line: usize,
}

impl Block {
    /// What is run of it, or named as not run: of commands each one, of anything else the whole.
    pub(crate) fn parts(&self) -> Vec<String> {
        if self.kind == Kind::Sh {
            commands(&self.text)
        } else {
            vec![self.text.clone()]
        }
    }
}

/// A document.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    /// Below the workspace's root.
    pub(crate) path: String,
    pub(crate) blocks: Vec<Block>,
    /// Code in running text and in tables.
    pub(crate) spans: Vec<String>,
    /// What links and pictures name.
    pub(crate) links: Vec<String>,
    /// What links name behind a `#`: its headings, as GitHub has them.
    pub(crate) anchors: Vec<String>,
}

impl Document {
    pub(crate) fn read(path: &str) -> Result<Self> {
        let text = fs::read_to_string(paths::workspace().join(path)).with_context(|| path.to_owned())?;
        let mut document = Self {
            path: path.to_owned(),
            blocks: Vec::new(),
            spans: Vec::new(),
            links: Vec::new(),
            anchors: Vec::new(),
        };
        let mut heading: Option<String> = None;
        let mut open: Option<Block> = None;
        for (event, range) in Parser::new_ext(&text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::CodeBlock(kind)) => {
                    let line = text[..range.start].lines().count() + 1;
                    open = Some(Block {
                        kind: kind_of(&kind),
                        text: String::new(),
                        line,
                    });
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => document.anchors.extend(heading.take().as_deref().map(anchor)),
                Event::Text(part) => {
                    if let Some(text) = open.as_mut().map(|block| &mut block.text).or(heading.as_mut()) {
                        text.push_str(&part);
                    }
                }
                Event::End(TagEnd::CodeBlock) => document.blocks.extend(open.take()),
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    document.links.push(dest_url.into_string());
                }
                Event::Code(code) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&code);
                    }
                    document.spans.push(code.into_string());
                }
                _ => {}
            }
        }
        Ok(document)
    }
}

fn anchor(heading: &str) -> String {
    let lower = heading.to_lowercase().replace(' ', "-");
    lower
        .chars()
        .filter(|character| character.is_alphanumeric() || matches!(character, '-' | '_'))
        .collect()
}

fn kind_of(kind: &CodeBlockKind<'_>) -> Kind {
    let CodeBlockKind::Fenced(language) = kind else {
        return Kind::Text;
    };
    match &**language {
        "sh" => Kind::Sh,
        "js" => Kind::Js,
        "toml" => Kind::Toml,
        "text" => Kind::Text,
        _ => Kind::Other,
    }
}

/// The commands of a block: lines that are neither empty nor comments, joined where one ends with a
/// backslash.
fn commands(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// All documents for users, operators and developers, as paths below the workspace's root.
pub(crate) fn all() -> Result<Vec<Document>> {
    let mut found: Vec<PathBuf> = [
        "README.md",
        "SECURITY.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "fuzz/README.md",
        "examples/README.md",
        "examples/express-mongoose-shop/README.md",
        "examples/fastapi-beanie-service/README.md",
        "examples/go-service/README.md",
        "examples/spring-boot-service/README.md",
    ]
    .map(PathBuf::from)
    .into();
    for folder in ["docs", "deploy"] {
        below(Path::new(folder), &mut found)?;
    }
    found.sort();
    found
        .iter()
        .map(|path| Document::read(&path.display().to_string()))
        .collect()
}

fn below(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(paths::workspace().join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            below(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    Ok(())
}
