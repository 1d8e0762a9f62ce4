//! Runs the suite, and finds the tests whose outcomes differ.
//!
//! A test that differs and is not in the list of [`expected`](super::expected) differences is run again alone
//! on both routes. Only a second difference counts. Tests with shapes are not repeated: they are few and have
//! no deadlines, so any difference is a bug.

use std::time::Instant;

use anyhow::Result;
use proto_tests::Level;
use proto_tests::proxy::Line;

use super::compare::{Difference, compare};
use super::outcome::Outcomes;
use super::presentation::Topology;
use super::pytest::Pytest;
use super::route::{Deployment, Route};
use super::shaped::Shaping;
use super::{Compared, Options, Plan, print};

/// With more differences than this, something is broken: their repetition would take an hour.
const REPEATED_AT_MOST: usize = 60;

/// What all tests on a route came to.
#[derive(Default)]
struct Whole {
    outcomes: Outcomes,
    /// What the proxy logged as WARN or ERROR.
    logged: Vec<String>,
    /// The shaped collections that violate their layout.
    broken: Vec<String>,
}

pub(super) struct Runner<'a> {
    pub(super) options: &'a Options,
    pub(super) pytest: Pytest,
    pub(super) plan: Plan,
}

impl Runner<'_> {
    /// One direct run, which is compared with a run of each route.
    pub(super) fn topology(&self, topology: Topology) -> Result<Vec<Compared>> {
        let presentations = self.options.presentations(topology);
        if presentations.is_empty() {
            return Ok(Vec::new());
        }
        let name = format!("{} direct", topology.name());
        let direct = self.run(&name, &self.direct(topology)?, &self.plan.tests)?;
        let routes = presentations.into_iter().flat_map(|one| self.plan.routes(one));
        routes.map(|route| self.route(route, &direct)).collect()
    }

    fn route(&self, route: Route, direct: &Outcomes) -> Result<Compared> {
        let Whole {
            outcomes: proxied,
            mut logged,
            broken,
        } = self.whole(&route)?;
        let list = &self.plan.list;
        let entry = |difference: &Difference| {
            list.iter()
                .position(|entry| entry.is_for(&route) && entry.matches(difference))
        };
        let (mut expected, mut unlisted) = (Vec::new(), Vec::new());
        for difference in compare(direct, &proxied) {
            match entry(&difference) {
                Some(entry) => expected.push((entry, difference)),
                None => unlisted.push(difference),
            }
        }
        let (mut unexpected, mut passing) = (unlisted, Vec::new());
        let is_repeated = route.shapings.is_empty() && unexpected.len() <= REPEATED_AT_MOST;
        if !unexpected.is_empty() && is_repeated {
            (unexpected, passing) = self.repeat(&route, unexpected, &mut logged)?;
        }
        let compared = Compared {
            stale: self.stale(&route, &expected),
            route,
            direct: direct.clone(),
            proxied,
            expected,
            unexpected,
            passing,
            logged,
            broken,
        };
        print::differences(&compared, list);
        Ok(compared)
    }

    /// The listed differences of shapes that did not occur on this route.
    fn stale(&self, route: &Route, expected: &[(usize, Difference)]) -> Vec<String> {
        let entries = self.plan.list.iter().take(self.plan.by_shapes).enumerate();
        let stale = entries
            .filter(|(_, entry)| entry.is_for(route))
            .flat_map(|(number, entry)| {
                let of_it = expected.iter().filter(|(of, _)| *of == number);
                let differences: Vec<_> = of_it.map(|(_, difference)| difference).collect();
                entry.unmet(&differences)
            });
        stale.map(str::to_owned).collect()
    }

    /// Runs each test alone, directly and through the proxy. Returns those that differ again, and those that do not.
    fn repeat(
        &self,
        route: &Route,
        differences: Vec<Difference>,
        logged: &mut Vec<String>,
    ) -> Result<(Vec<Difference>, Vec<Difference>)> {
        println!("  {} tests differ and are repeated, each alone", differences.len());
        let direct = self.direct(route.presentation.topology())?;
        let proxied = self.proxied(route, None)?;
        let (mut again, mut passing) = (Vec::new(), Vec::new());
        for (number, difference) in differences.into_iter().enumerate() {
            let test = [difference.test.clone()];
            let name = format!("{} {number}", route.name());
            let direct = self.pytest.run(&format!("{name} direct"), direct.address(), &test)?;
            let proxied = self.pytest.run(&name, proxied.address(), &test)?;
            match compare(&direct, &proxied).pop() {
                Some(repeated) => again.push(repeated),
                None => passing.push(difference),
            }
        }
        logged.extend(warnings(&proxied));
        Ok((again, passing))
    }

    /// All tests on a route.
    fn whole(&self, route: &Route) -> Result<Whole> {
        let mut whole = Whole::default();
        let topology = route.presentation.topology().name();
        for (number, shaping) in (1..).zip(route.runs()) {
            let part = if number == 1 {
                String::new()
            } else {
                format!(" {number}")
            };
            let name = format!("{topology} as {}{part}", route.name());
            let deployment = self.proxied(route, shaping)?;
            let tests = shaping.map_or(self.plan.tests.as_slice(), Shaping::tests);
            whole.outcomes.extend(self.run(&name, &deployment, tests)?);
            whole.logged.extend(warnings(&deployment));
            let checked = shaping.map_or(Ok(()), |shaping| deployment.check(shaping));
            whole
                .broken
                .extend(checked.err().map(|error| format!("{name}: {error:#}")));
        }
        Ok(whole)
    }

    fn run(&self, name: &str, deployment: &Deployment, tests: &[String]) -> Result<Outcomes> {
        let started = Instant::now();
        let outcomes = self.pytest.run(name, deployment.address(), tests)?;
        println!(
            "{name}: {} in {} s",
            print::counts(&outcomes),
            started.elapsed().as_secs()
        );
        Ok(outcomes)
    }

    fn direct(&self, topology: Topology) -> Result<Deployment> {
        Deployment::direct(topology, self.options.members.into())
    }

    fn proxied(&self, route: &Route, shaping: Option<&Shaping>) -> Result<Deployment> {
        Deployment::proxied(
            route,
            shaping,
            self.options.members.into(),
            self.options.binary.as_ref(),
        )
    }
}

/// The proxy's log line for fail points, which close connections.
const PROVOKED: &str = "closed a connection: the upstream is not available";

/// The proxy's other WARN and ERROR lines so far. They are reported here, not when the proxy ends.
fn warnings(deployment: &Deployment) -> Vec<String> {
    let Some(proxy) = &deployment.proxy else {
        return Vec::new();
    };
    for level in [Level::Warn, Level::Error] {
        proxy.expect_log(level, "");
    }
    let is_unexpected = |line: &Line| line.level != Level::Info && !line.text.contains(PROVOKED);
    let graver = proxy.log().into_iter().filter(is_unexpected);
    graver.map(|line| line.text).collect()
}
