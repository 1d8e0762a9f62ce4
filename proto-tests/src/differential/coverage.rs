//! Counts the productions of the [grammar](super::grammar) that a run has used, alone and in pairs, and
//! selects the next ones.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::grammar::{self, GROUPS, Group, Site};

/// How much more likely an alternative becomes by each pair that is new with it.
const PULL_OF_A_PAIR: u32 = 3;
/// How much more likely one becomes that was never taken.
const PULL_OF_A_PRODUCTION: u32 = 60;

/// How much more likely one becomes whose list has examples that were never taken.
const PULL_OF_A_LIST: u32 = 15;

/// An alternative of a site: the names of both.
pub type Production = (&'static str, &'static str);

/// The productions used so far. They depend on the generator only, never on a reply.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    productions: BTreeMap<Production, u32>,
    pairs: BTreeMap<&'static str, BTreeMap<[Production; 2], u32>>,
    /// Of each list of examples, how often each was taken, by its text.
    examples: BTreeMap<&'static str, BTreeMap<String, u32>>,
    /// The commands, options and operators that were generated.
    names: BTreeSet<String>,
    /// The open groups, outermost first, each with its productions.
    open: Vec<(&'static Group, Vec<Production>)>,
}

impl Coverage {
    /// Begins a group: the productions up to its [end](Self::end) form pairs.
    pub(super) fn begin(&mut self, group: &'static Group) {
        self.open.push((group, Vec::new()));
    }

    pub(super) fn end(&mut self) {
        self.open.pop();
    }

    /// How likely each alternative should be taken: more, if it or pairs with it have not been.
    pub(super) fn weights(&self, site: &'static Site) -> Vec<u32> {
        let weight = |(name, weight): &(&'static str, u32)| -> u32 {
            let production = (site.name, *name);
            let pairs = self.open.last().map_or(0, |open| self.new_pairs(open, production));
            let pull = if self.productions.contains_key(&production) {
                0
            } else {
                PULL_OF_A_PRODUCTION
            };
            let pull_of_list = if self.has_examples_left(site.name, name) {
                PULL_OF_A_LIST
            } else {
                0
            };
            weight + pull + pull_of_list + pairs * PULL_OF_A_PAIR
        };
        site.alternatives.iter().map(weight).collect()
    }

    /// Whether the list of a production, which is named by it (`find.mistake`), has examples that were not
    /// taken.
    fn has_examples_left(&self, site: &str, alternative: &str) -> bool {
        let is_its = |list: &str| {
            let name = list.strip_prefix(site).and_then(|rest| rest.strip_prefix('.'));
            name.is_some_and(|name| name.eq_ignore_ascii_case(alternative))
        };
        let of_site = self.examples.range::<str, _>((Bound::Included(site), Bound::Unbounded));
        let of_site = of_site.take_while(|(list, _)| list.starts_with(site));
        let mut lists = of_site.filter(|(list, _)| is_its(list));
        lists.any(|(_, texts)| texts.values().any(|count| *count == 0))
    }

    fn new_pairs(&self, (group, taken): &(&'static Group, Vec<Production>), production: Production) -> u32 {
        if !group.has(production.0) {
            return 0;
        }
        let known = self.pairs.get(group.name);
        let is_new = |other: &&Production| {
            other.0 != production.0 && known.is_none_or(|known| !known.contains_key(&pair(**other, production)))
        };
        u32::try_from(taken.iter().filter(is_new).count()).unwrap_or(u32::MAX)
    }

    pub(super) fn take(&mut self, production: Production) {
        *self.productions.entry(production).or_default() += 1;
        let Some((group, taken)) = self.open.last_mut() else {
            return;
        };
        if !group.has(production.0) {
            return;
        }
        let pairs = self.pairs.entry(group.name).or_default();
        for other in taken.iter().filter(|other| other.0 != production.0) {
            *pairs.entry(pair(*other, production)).or_default() += 1;
        }
        taken.push(production);
    }

    /// The texts of a list's examples that were taken least.
    pub(super) fn least(&mut self, list: &'static str, texts: &[String]) -> Vec<usize> {
        let counts = self.examples.entry(list).or_default();
        for text in texts {
            counts.entry(text.clone()).or_default();
        }
        let least = texts.iter().map(|text| counts[text]).min();
        let of_least = texts
            .iter()
            .enumerate()
            .filter(|(_, text)| Some(counts[*text]) == least);
        of_least.map(|(index, _)| index).collect()
    }

    pub(super) fn take_example(&mut self, list: &'static str, text: &str) {
        if let Some(count) = self.examples.get_mut(list).and_then(|counts| counts.get_mut(text)) {
            *count += 1;
        }
    }

    /// Records the names in a command: its own, its options, and the operators at any depth.
    pub(super) fn add_names(&mut self, names: impl IntoIterator<Item = String>) {
        self.names.extend(names);
    }

    /// Whether a command, an option (`find.sort`) or an operator (`$gt`) was generated.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Adds the productions of another run.
    pub fn add(&mut self, other: &Self) {
        for (production, count) in &other.productions {
            *self.productions.entry(*production).or_default() += count;
        }
        for (group, pairs) in &other.pairs {
            let known = self.pairs.entry(group).or_default();
            for (pair, count) in pairs {
                *known.entry(*pair).or_default() += count;
            }
        }
        for (list, texts) in &other.examples {
            let known = self.examples.entry(list).or_default();
            for (text, count) in texts {
                *known.entry(text.clone()).or_default() += count;
            }
        }
        self.names.extend(other.names.iter().cloned());
    }

    /// The unused productions of these sites, and the examples of lists that were used.
    #[must_use]
    pub fn uncovered(&self, is_wanted: impl Fn(&Site) -> bool) -> Vec<String> {
        let sites = grammar::sites().filter(|site| is_wanted(site));
        let productions = sites.flat_map(Site::productions);
        let productions = productions.filter(|production| !self.productions.contains_key(production));
        let mut uncovered: Vec<String> = productions.map(|(site, name)| format!("{site}: {name}")).collect();
        for (list, texts) in &self.examples {
            let never = texts.iter().filter(|(_, count)| **count == 0);
            uncovered.extend(never.map(|(text, _)| format!("{list}: {text}")));
        }
        uncovered
    }

    /// The pairs of a group that were never taken together.
    #[must_use]
    pub fn uncovered_pairs(&self, group: &'static Group) -> Vec<[Production; 2]> {
        let known = self.pairs.get(group.name);
        let pairs = group.pairs().into_iter();
        pairs
            .filter(|pair| known.is_none_or(|known| !known.contains_key(pair)))
            .collect()
    }
}

fn pair(one: Production, other: Production) -> [Production; 2] {
    if one < other { [one, other] } else { [other, one] }
}

impl Group {
    fn has(&self, site: &str) -> bool {
        self.sites.iter().any(|own| own.name == site)
    }

    /// All pairs of productions of two sites, but for those that [never](grammar::NEVER) come together.
    #[must_use]
    pub fn pairs(&self) -> Vec<[Production; 2]> {
        let mut pairs = Vec::new();
        for (position, one) in self.sites.iter().enumerate() {
            for other in &self.sites[position + 1..] {
                for first in one.productions() {
                    pairs.extend(other.productions().map(|second| pair(first, second)));
                }
            }
        }
        pairs.retain(|pair| !grammar::never_together(pair));
        pairs
    }
}

impl std::fmt::Display for Coverage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all: usize = grammar::sites().map(|site| site.alternatives.len()).sum();
        write!(f, "{} of {all} productions", self.productions.len())?;
        let examples = self.examples.values().flatten();
        let taken = examples.clone().filter(|(_, count)| **count > 0).count();
        write!(f, ", {taken} of {} examples", examples.count())?;
        for group in GROUPS {
            let all = group.pairs().len();
            let left = self.uncovered_pairs(group);
            write!(f, "\n  pairs of {}: {} of {all}", group.name, all - left.len())?;
        }
        Ok(())
    }
}
