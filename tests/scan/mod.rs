//! Finds the paths that Rust source names, `use` trees opened up. Reads tokens only; knows no rules.

/// A path, as written: `use a::{b, c::*}` gives `a::b` and `a::c::*`.
#[derive(Debug)]
pub(crate) struct UsedPath {
    /// The line of its last segment, from 1.
    pub(crate) line: usize,
    /// At least one. A glob is `*`; the module itself, in a tree or renamed, is `self`. A leading `::` is
    /// left out.
    pub(crate) segments: Vec<String>,
    /// How many `mod name { .. }` in the file the path is inside of.
    pub(crate) inline_modules: usize,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    PathSeparator,
    Symbol(char),
}

/// The words that stand before a path without being part of it, where the path may start with `::`.
const KEYWORDS: [&str; 12] = [
    "as", "dyn", "else", "for", "impl", "in", "let", "match", "mut", "ref", "return", "use",
];

/// Every path in `source`, in order. A word by itself is a path of one segment.
pub(crate) fn used_paths(source: &str) -> Vec<UsedPath> {
    let mut parser = Parser {
        tokens: tokens(source),
        place: 0,
        inline_modules: 0,
        paths: Vec::new(),
    };
    // For each open brace, whether it is that of an inline module.
    let mut braces = Vec::new();
    while let Some((_, token)) = parser.tokens.get(parser.place).cloned() {
        match token {
            Token::Word(word) if word == "mod" && parser.symbol(2) == Some('{') => {
                parser.place += 3;
                parser.inline_modules += 1;
                braces.push(true);
            }
            Token::Word(word) if KEYWORDS.contains(&word.as_str()) => parser.place += 1,
            Token::Word(_) => parser.path(&[]),
            Token::Symbol('{') => {
                braces.push(false);
                parser.place += 1;
            }
            Token::Symbol('}') => {
                parser.inline_modules -= usize::from(braces.pop().unwrap_or(false));
                parser.place += 1;
            }
            _ => parser.place += 1,
        }
    }
    parser.paths
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    place: usize,
    inline_modules: usize,
    paths: Vec<UsedPath>,
}

impl Parser {
    fn token(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.place + ahead).map(|(_, token)| token)
    }

    fn symbol(&self, ahead: usize) -> Option<char> {
        match self.token(ahead) {
            Some(Token::Symbol(symbol)) => Some(*symbol),
            _ => None,
        }
    }

    /// Reads one path or `use` tree whose first word or symbol is next, after the segments `before` it.
    fn path(&mut self, before: &[String]) {
        let mut segments = before.to_vec();
        let mut line = 0;
        loop {
            match self.token(0) {
                Some(Token::Word(word)) => segments.push(word.clone()),
                Some(Token::Symbol('*')) => segments.push("*".to_owned()),
                Some(Token::Symbol('{')) if !segments.is_empty() => return self.tree(&segments),
                // Generic arguments, or anything else that ends a path.
                _ => break,
            }
            line = self.tokens[self.place].0;
            self.place += 1;
            if self.token(0) != Some(&Token::PathSeparator) {
                break;
            }
            self.place += 1;
        }
        let is_renamed = self.token(0) == Some(&Token::Word("as".to_owned()));
        if is_renamed && segments.last().is_some_and(|last| last == "crate" || last == "super") {
            segments.push("self".to_owned());
        }
        if !segments.is_empty() && line > 0 {
            self.paths.push(UsedPath {
                line,
                segments,
                inline_modules: self.inline_modules,
            });
        }
    }

    /// Reads `{ .. }` of a `use` tree.
    fn tree(&mut self, before: &[String]) {
        self.place += 1;
        while let Some(token) = self.token(0) {
            match token {
                Token::Symbol('}') => {
                    self.place += 1;
                    return;
                }
                // `as name` renames, and names nothing.
                Token::Word(word) if word == "as" => self.place += 2,
                Token::Word(_) | Token::Symbol('*' | '{') => self.path(before),
                _ => self.place += 1,
            }
        }
    }
}

/// The tokens of `source` with their lines: no comments, strings, characters, lifetimes.
fn tokens(source: &str) -> Vec<(usize, Token)> {
    let mut tokens = Vec::new();
    let mut rest = source;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let (length, token) = next_token(rest, first);
        if let Some(token) = token {
            tokens.push((line, token));
        }
        let (text, after) = rest.split_at(length);
        line += text.matches('\n').count();
        rest = after;
    }
    tokens
}

/// The length of the next token in bytes, and the token if it is one that counts.
fn next_token(rest: &str, first: char) -> (usize, Option<Token>) {
    let until = |end: &str| rest.find(end).unwrap_or(rest.len());
    if rest.starts_with("//") {
        return (until("\n"), None);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), None);
    }
    if rest.starts_with("::") {
        return (2, Some(Token::PathSeparator));
    }
    if let Some(length) = raw_string(rest) {
        return (length, None);
    }
    match first {
        '"' => (quoted(rest, '"'), None),
        '\'' => (character_or_lifetime(rest), None),
        _ if first.is_alphanumeric() || first == '_' => {
            let length = rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            (length, Some(Token::Word(rest[..length].to_owned())))
        }
        _ if first.is_whitespace() => (first.len_utf8(), None),
        _ => (first.len_utf8(), Some(Token::Symbol(first))),
    }
}

/// The length of a comment, with the comments inside it.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut place = 0;
    while place < rest.len() {
        let step = &rest.as_bytes()[place..];
        if step.starts_with(b"/*") {
            depth += 1;
            place += 2;
        } else if step.starts_with(b"*/") {
            depth -= 1;
            place += 2;
        } else {
            place += 1;
        }
        if depth == 0 {
            return place;
        }
    }
    rest.len()
}

/// The length of `r"..."`, `br#"..."#` and the like, if one is next.
fn raw_string(rest: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
        let after = rest.strip_prefix(prefix).map(|after| after.trim_start_matches('#'));
        after.is_some_and(|after| after.starts_with('"'))
    })?;
    let after = &rest[prefix.len()..];
    let hashes = after.len() - after.trim_start_matches('#').len();
    let start = prefix.len() + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(
        rest[start..]
            .find(&end)
            .map_or(rest.len(), |length| start + length + end.len()),
    )
}

/// The length of a quoted text with its quotes, escapes skipped.
fn quoted(rest: &str, quote: char) -> usize {
    let mut characters = rest.char_indices().skip(1);
    while let Some((place, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if character == quote {
            return place + quote.len_utf8();
        }
    }
    rest.len()
}

/// The length of `'x'`, or of the quote and the name of a lifetime.
fn character_or_lifetime(rest: &str) -> usize {
    let mut characters = rest.chars().skip(1);
    let is_escape = characters.next() == Some('\\');
    if is_escape || characters.next() == Some('\'') {
        return quoted(rest, '\'');
    }
    let name = rest[1..].find(|c: char| !c.is_alphanumeric() && c != '_');
    name.map_or(rest.len(), |length| length + 1)
}
