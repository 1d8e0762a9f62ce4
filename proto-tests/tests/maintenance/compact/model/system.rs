//! Runs, clients and messages: what may happen to a protocol by which a collection is exchanged.
//!
//! A run sends one command after the other. Each is executed and answered; or it is executed and the answer
//! is lost; or it is delayed until it is executed late, twice, or never. Its run only gets no
//! answer. A run may be killed at any time, and another begin. Commands that make a collection
//! or a fence do not arrive twice, as TCP delivers what was sent once at most once, and no run sends them
//! again.

use super::server::{Command, Name, Refusal, Server};
use proto_tests::search::Model;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    /// All is well: it has exchanged the collections, or taken back what it had done.
    Well,
    /// It has reported that another run must be started.
    Unfinished,
}

/// What a run does next.
pub(super) enum Step<P> {
    Send {
        command: Command,
        then: Then<P>,
    },
    /// It has read the server's state, or decided.
    Go(P),
    End(Ending),
}

/// Where a run continues after a reply, or without one.
pub(super) struct Then<P> {
    pub(super) done: P,
    pub(super) refused: P,
    pub(super) silent: P,
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Run<P> {
    pub(super) id: u8,
    pub(super) at: P,
    /// UUIDs.
    pub(super) main: u8,
    pub(super) copy: Option<u8>,
    pub(super) place: Option<u8>,
    pub(super) was_frozen: bool,
}

/// A protocol.
pub(super) trait Protocol {
    type At: Copy + Eq + std::hash::Hash + std::fmt::Debug;

    fn begin(&self) -> Self::At;

    fn step(&self, run: &mut Run<Self::At>, server: &Server) -> Step<Self::At>;

    /// Whether it may be stopped here by a signal, and what it does then.
    fn stopped(&self, _at: Self::At) -> Option<Self::At> {
        None
    }
}

/// How much may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Runs that begin.
    pub(super) runs: u8,
    /// Runs at a time.
    pub(super) at_once: u8,
    /// Commands without an answer.
    pub(super) cuts: u8,
    pub(super) kills: u8,
    pub(super) stops: u8,
    /// Commands that arrive twice.
    pub(super) twice: u8,
    /// Writes of clients.
    pub(super) writes: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State<P> {
    server: Server,
    runs: Vec<Run<P>>,
    next_run: u8,
    /// Delayed commands, in any order.
    delayed: Vec<Command>,
    left: Budget,
    /// Writes that were acknowledged.
    acknowledged: u8,
    /// How the runs have ended since the last began: `Unfinished` if one has reported that, `None` if one was
    /// killed.
    last: Option<Ending>,
}

pub(super) struct System<R> {
    pub(super) protocol: R,
    pub(super) budget: Budget,
    /// The one kind of fault that is looked for; else all are.
    pub(super) only: Option<&'static str>,
}

pub(super) const LOST: &str = "an acknowledged write is lost";
pub(super) const FROZEN: &str = "it is frozen, and there is no run";
pub(super) const MISSING: &str = "there is no collection, and no run";

impl<R: Protocol> System<R> {
    fn sent(
        state: &State<R::At>,
        (index, run): (usize, &Run<R::At>),
        (command, then): (Command, &Then<R::At>),
    ) -> Vec<(String, State<R::At>)> {
        let goes_on = |mut state: State<R::At>, at: R::At| {
            state.runs[index] = Run { at, ..run.clone() };
            state
        };
        let mut executed = state.clone();
        let at = match executed.server.run(command) {
            Ok(()) => then.done,
            Err(Refusal::NotFound | Refusal::Exists | Refusal::IndexNotFound) => then.refused,
        };
        let mut next = vec![(format!("run {}: {command:?}", run.id), goes_on(executed.clone(), at))];
        if state.left.cuts > 0 {
            executed.left.cuts -= 1;
            let words = format!("run {}: {command:?}, and the answer is lost", run.id);
            next.push((words, goes_on(executed, then.silent)));
            let mut held = state.clone();
            held.left.cuts -= 1;
            held.delayed.push(command);
            held.delayed.sort_unstable();
            let words = format!("run {}: {command:?} is delayed", run.id);
            next.push((words, goes_on(held, then.silent)));
        }
        next
    }

    fn moves(&self, state: &State<R::At>, index: usize) -> Vec<(String, State<R::At>)> {
        let mut run = state.runs[index].clone();
        let id = run.id;
        let mut next = match self.protocol.step(&mut run, &state.server) {
            Step::Send { command, then } => Self::sent(state, (index, &run), (command, &then)),
            Step::Go(at) => {
                let mut gone = state.clone();
                gone.runs[index] = Run { at, ..run };
                vec![(format!("run {id} continues at {at:?}"), gone)]
            }
            Step::End(ending) => {
                let mut ended = state.clone();
                ended.runs.remove(index);
                // The `Unfinished` of another run beside it is kept.
                ended.last = state
                    .last
                    .filter(|last| *last == Ending::Unfinished)
                    .or(state.last.map(|_| ending));
                vec![(format!("run {id} ends: {ending:?}"), ended)]
            }
        };
        if state.left.kills > 0 {
            let mut killed = state.clone();
            killed.left.kills -= 1;
            killed.runs.remove(index);
            killed.last = None;
            next.push((format!("run {id} is killed"), killed));
        }
        if state.left.stops > 0
            && let Some(at) = self.protocol.stopped(state.runs[index].at)
        {
            let mut stopped = state.clone();
            stopped.left.stops -= 1;
            stopped.runs[index].at = at;
            next.push((format!("run {id} is stopped"), stopped));
        }
        next
    }

    fn arrivals(state: &State<R::At>) -> Vec<(String, State<R::At>)> {
        let mut next = Vec::new();
        for (index, command) in state.delayed.iter().enumerate() {
            let mut arrived = state.clone();
            arrived.delayed.remove(index);
            // The reply is lost.
            let _ = arrived.server.run(*command);
            let makes = matches!(command, Command::Create { .. } | Command::CreateIndexes { .. });
            if state.left.twice > 0 && !makes {
                let mut twice = arrived.clone();
                twice.left.twice -= 1;
                twice.delayed.push(*command);
                twice.delayed.sort_unstable();
                next.push((format!("{command:?} arrives, and will again"), twice));
            }
            next.push((format!("{command:?} arrives"), arrived));
        }
        next
    }

    fn new_run(&self, state: &State<R::At>) -> Run<R::At> {
        Run {
            id: state.next_run,
            at: self.protocol.begin(),
            main: 0,
            copy: None,
            place: None,
            was_frozen: false,
        }
    }

    /// What one more run makes of a state, if nothing happens to it.
    fn after_one_more(&self, state: &State<R::At>) -> (Ending, Server) {
        let mut server = state.server.clone();
        let mut run = self.new_run(state);
        for _ in 0..100 {
            match self.protocol.step(&mut run, &server) {
                Step::Send { command, then } => {
                    run.at = if server.run(command).is_ok() {
                        then.done
                    } else {
                        then.refused
                    };
                }
                Step::Go(at) => run.at = at,
                Step::End(ending) => return (ending, server),
            }
        }
        panic!("a run does not end: {state:?}");
    }
}

/// What must hold of a server where no run is at work.
fn unwell(server: &Server) -> Option<String> {
    match server.at(Name::Main) {
        None => Some(MISSING.to_owned()),
        Some(main) if main.is_frozen => Some(FROZEN.to_owned()),
        Some(_) => None,
    }
}

impl<R: Protocol> Model for System<R> {
    type State = State<R::At>;

    fn first(&self) -> Self::State {
        State {
            server: Server::new(),
            runs: Vec::new(),
            next_run: 0,
            delayed: Vec::new(),
            left: self.budget,
            acknowledged: 0,
            last: Some(Ending::Well),
        }
    }

    fn next(&self, state: &Self::State) -> Vec<(String, Self::State)> {
        let mut next = Self::arrivals(state);
        for index in 0..state.runs.len() {
            next.extend(self.moves(state, index));
        }
        if state.left.runs > 0 && state.runs.len() < usize::from(state.left.at_once) {
            let mut begun = state.clone();
            begun.left.runs -= 1;
            begun.last = Some(Ending::Well);
            begun.runs.push(self.new_run(state));
            begun.next_run += 1;
            next.push((format!("run {} begins", state.next_run), begun));
        }
        if state.left.writes > 0 {
            let mut written = state.clone();
            let write = 1 << state.left.writes;
            if written.server.write(write) {
                written.left.writes -= 1;
                written.acknowledged |= write;
                next.push(("a client's write is acknowledged".to_owned(), written));
            }
        }
        next
    }

    fn fault(&self, state: &Self::State) -> Option<String> {
        let fault = self.any_fault(state);
        fault.filter(|fault| self.only.is_none_or(|only| fault == only))
    }
}

impl<R: Protocol> System<R> {
    fn any_fault(&self, state: &State<R::At>) -> Option<String> {
        let holder = state.server.at(Name::Main).or_else(|| state.server.at(Name::Kept));
        let held = holder.map_or(0, |holder| holder.items);
        if state.acknowledged & !held != 0 {
            return Some(LOST.to_owned());
        }
        if !state.runs.is_empty() {
            return None;
        }
        if state.last == Some(Ending::Well)
            && let Some(fault) = unwell(&state.server)
        {
            return Some(fault);
        }
        let (ending, server) = self.after_one_more(state);
        let kept = server.at(Name::Main).map_or(0, |main| main.items);
        if ending != Ending::Well || state.acknowledged & !kept != 0 {
            return Some(format!("one more run does not mend it: {ending:?}, {server:?}"));
        }
        unwell(&server).map(|fault| format!("after one more run {fault}"))
    }
}
