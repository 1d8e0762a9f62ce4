//! Writers beside `compact`: a command of several statements, the freeze that refuses the rest of them, and
//! whether the command is run again from its beginning.
//!
//! A proxy sends a command's statements in two parts. Each may be refused by the freeze, or stay without an
//! answer and arrive late. What was refused it runs again once the collection was replaced or thawed, if it
//! may; the client is answered how often its items were changed, or an error.

use proto_tests::search::Model;

/// What a command does to each of its items, as it shows when that is done twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// `$inc`: a second time changes the item again, and is counted again.
    Update,
    /// A second time finds nothing, and is not counted.
    Delete,
    /// A second time finds the item there, and is an error.
    Insert,
}

/// How the proxy decides whether it may run a command again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Decision {
    /// By the number of items that the answer counts; that of a statement that failed is counted as none.
    ByCount,
    /// By whether any part of it was executed.
    ByFact,
}

pub(super) struct Writers {
    pub(super) kind: Kind,
    pub(super) decision: Decision,
    /// Whether mongod remembers which statements it has executed.
    pub(super) is_retryable: bool,
}

/// The parts of a command.
const PARTS: u8 = 2;
const FREEZES: u8 = 2;
const CUTS: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Client {
    Waits,
    /// It has a reply with the number of changed items.
    Answered(u8),
    /// It has an error: a part may have been executed.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    is_frozen: bool,
    freezes_left: u8,
    cuts_left: u8,
    /// How often each part's item was changed.
    changed: [u8; PARTS as usize],
    /// What mongod remembers.
    remembered: [bool; PARTS as usize],
    /// The delayed part of the command, from a connection that is closed.
    delayed: Option<u8>,
    /// The proxy's position in the command, and its counts of changed and executed parts in this execution.
    part: u8,
    counted: u8,
    executed: bool,
    client: Client,
}

impl Writers {
    /// mongod executes a part: how many items it counts, or that it is refused.
    fn execute(&self, state: &mut State, part: u8) -> Option<u8> {
        let index = usize::from(part);
        if self.is_retryable && state.remembered[index] {
            return Some(1);
        }
        if state.is_frozen {
            return None;
        }
        let again = state.changed[index] > 0;
        if again && self.kind != Kind::Update {
            return Some(0);
        }
        state.changed[index] += 1;
        state.remembered[index] = true;
        Some(1)
    }

    fn proceed(&self, mut state: State) -> (String, State) {
        let part = state.part;
        if let Some(counted) = self.execute(&mut state, part) {
            state.counted += counted;
            state.executed = true;
            state.part += 1;
            if state.part == PARTS {
                state.client = Client::Answered(state.counted);
            }
            return (format!("part {part} is executed"), state);
        }
        let may_be_run_again = self.is_retryable
            || match self.decision {
                // The outcome of a command that failed was taken for none.
                Decision::ByCount => true,
                Decision::ByFact => !state.executed,
            };
        if may_be_run_again {
            (state.part, state.counted, state.executed) = (0, 0, false);
        } else {
            state.client = Client::Failed;
        }
        (format!("part {part} is refused"), state)
    }
}

impl Model for Writers {
    type State = State;

    fn first(&self) -> State {
        State {
            is_frozen: false,
            freezes_left: FREEZES,
            cuts_left: CUTS,
            changed: [0; PARTS as usize],
            remembered: [false; PARTS as usize],
            delayed: None,
            part: 0,
            counted: 0,
            executed: false,
            client: Client::Waits,
        }
    }

    fn next(&self, state: &State) -> Vec<(String, State)> {
        let mut next = Vec::new();
        if state.is_frozen {
            let mut thawed = state.clone();
            thawed.is_frozen = false;
            next.push(("it is replaced, or thawed".to_owned(), thawed));
        } else if state.freezes_left > 0 {
            let mut frozen = state.clone();
            frozen.freezes_left -= 1;
            frozen.is_frozen = true;
            next.push(("it is frozen".to_owned(), frozen));
        }
        if let Some(part) = state.delayed {
            let mut arrived = state.clone();
            arrived.delayed = None;
            self.execute(&mut arrived, part);
            next.push((format!("part {part} arrives"), arrived));
        }
        if state.client == Client::Waits {
            // What is run again waits for the end of the freeze first.
            if !(state.is_frozen && state.part == 0 && state.freezes_left < FREEZES && !state.executed) {
                next.push(self.proceed(state.clone()));
            }
            if state.cuts_left > 0 {
                let mut cut = state.clone();
                cut.cuts_left -= 1;
                cut.delayed = Some(state.part);
                cut.client = Client::Failed;
                next.push((format!("part {} is delayed", state.part), cut));
            }
        }
        if state.client == Client::Failed && self.is_retryable && state.freezes_left + state.cuts_left > 0 {
            let mut resent = state.clone();
            resent.client = Client::Waits;
            (resent.part, resent.counted, resent.executed) = (0, 0, false);
            next.push(("the driver sends it again".to_owned(), resent));
        }
        next
    }

    fn fault(&self, state: &State) -> Option<String> {
        if state.changed.iter().any(|times| *times > 1) {
            return Some("an item was changed twice".to_owned());
        }
        let changed: u8 = state.changed.iter().sum();
        match state.client {
            Client::Answered(counted) if counted != changed => {
                Some(format!("{counted} are answered, and {changed} were changed"))
            }
            _ => None,
        }
    }
}
