//! A breadth-first search through all states of a model. A published model checker would bring a web server,
//! a second `rand` and some fifteen other packages into the tests, for what fits on this page.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::rc::Rc;

/// What is searched.
pub trait Model {
    /// A state.
    type State: Clone + Eq + Hash + Debug;

    /// The first state.
    fn first(&self) -> Self::State;

    /// The possible next steps, each with its description and the state after it.
    fn next(&self, state: &Self::State) -> Vec<(String, Self::State)>;

    /// The description of a violation, if there is one.
    fn fault(&self, state: &Self::State) -> Option<String>;
}

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// Visited states.
    pub states: usize,
    /// The shortest path to a fault, and the fault.
    pub counterexample: Option<Vec<String>>,
}

struct Reached<S> {
    state: Rc<S>,
    from: Option<usize>,
    by: String,
}

/// Goes through all states, up to the first that is at fault.
///
/// # Panics
/// If there are more states.
pub fn search<M: Model>(model: &M, max_states: usize) -> Found {
    let first = Rc::new(model.first());
    let mut visited = HashSet::from([Rc::clone(&first)]);
    let mut reached = vec![Reached {
        state: first,
        from: None,
        by: "begins".to_owned(),
    }];
    let mut at = 0;
    while at < reached.len() {
        let state = Rc::clone(&reached[at].state);
        if let Some(fault) = model.fault(&state) {
            return Found {
                states: visited.len(),
                counterexample: Some(way_to(&reached, at, fault)),
            };
        }
        for (by, next) in model.next(&state) {
            let next = Rc::new(next);
            if visited.insert(Rc::clone(&next)) {
                reached.push(Reached {
                    state: next,
                    from: Some(at),
                    by,
                });
            }
        }
        at += 1;
        assert!(
            visited.len() <= max_states,
            "more than {max_states} states: the model is too large"
        );
    }
    Found {
        states: visited.len(),
        counterexample: None,
    }
}

fn way_to<S: Debug>(reached: &[Reached<S>], at: usize, fault: String) -> Vec<String> {
    let mut path = vec![format!("{:?}", reached[at].state), fault];
    let mut at = Some(at);
    while let Some(index) = at {
        path.push(reached[index].by.clone());
        at = reached[index].from;
    }
    path.reverse();
    path
}
