//! `cargo xtask measures`: prints sizes, names and comments of `src/`, without code that is compiled for
//! tests only.

mod circles;
mod source;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use clap::Args;
use proto_tests::paths;

use self::source::SourceFile;

/// Columns of the longest comment line that is not listed.
const COMMENT_COLUMNS: usize = 110;
/// Lines of the longest function body that is not listed.
const FUNCTION_LINES: usize = 60;
/// Modules of the largest import circle that is not listed.
const CIRCLE_MODULES: usize = 4;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Fail where a bound is exceeded
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let files = source::read(&paths::workspace().join("src"))?;
    sizes("lines a file", files.iter().map(|file| file.lines).collect());
    println!("lines: {}", files.iter().map(|file| file.lines).sum::<usize>());
    let functions = || files.iter().flat_map(|file| &file.functions);
    sizes("lines a function", functions().map(|function| function.lines).collect());
    let findings = [
        list(
            &format!("functions over {FUNCTION_LINES} lines"),
            &functions()
                .filter(|function| function.lines > FUNCTION_LINES)
                .map(|function| format!("{} {}", function.place, function.lines))
                .collect::<Vec<_>>(),
        ),
        list("type names with several definitions", &defined_twice(&files)),
        list(
            "tuple parameters",
            &files
                .iter()
                .flat_map(|file| file.tuple_parameters.clone())
                .collect::<Vec<_>>(),
        ),
        list(
            "nested Option or Result",
            &files
                .iter()
                .flat_map(|file| file.nested_types.clone())
                .collect::<Vec<_>>(),
        ),
        list(
            &format!("comment lines over {COMMENT_COLUMNS} columns"),
            &files
                .iter()
                .flat_map(|file| file.long_comments.clone())
                .collect::<Vec<_>>(),
        ),
        list(
            &format!("import circles over {CIRCLE_MODULES} modules"),
            &circles::find(&files)
                .into_iter()
                .filter(|circle| circle.len() > CIRCLE_MODULES)
                .map(|circle| format!("{}: {}", circle.len(), circle.join(" ")))
                .collect::<Vec<_>>(),
        ),
    ];
    let exceeded = findings.into_iter().filter(|found| *found > 0).count();
    ensure!(!options.check || exceeded == 0, "{exceeded} bounds are exceeded");
    Ok(())
}

fn sizes(name: &str, mut sizes: Vec<usize>) {
    sizes.sort_unstable();
    let at = |percent: usize| sizes.get(sizes.len().saturating_sub(1) * percent / 100).copied();
    let [median, ninetieth, most] = [50, 90, 100].map(|percent| at(percent).unwrap_or_default());
    println!(
        "{name}: {} in all, median {median}, 90th percentile {ninetieth}, most {most}",
        sizes.len()
    );
}

/// Prints a count and what it is of, and returns the count.
fn list(name: &str, found: &[String]) -> usize {
    println!("{name}: {}", found.len());
    for one in found {
        println!("  {one}");
    }
    found.len()
}

fn defined_twice(files: &[SourceFile]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files {
        for name in &file.types {
            places.entry(name).or_default().push(&file.module);
        }
    }
    places.retain(|_, places| places.len() > 1);
    let lines = places
        .into_iter()
        .map(|(name, places)| format!("{name}: {}", places.join(" ")));
    lines.collect()
}
