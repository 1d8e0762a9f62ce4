//! All that may happen beside a run: commands that arrive late, kills, failovers, and clients.

use proto_tests::search::Model;

use super::clients::{Numbered, Position, Proxy, write_directly};
use super::protocol::{Budget, Late, Part, Protocol};
use super::run::{At, Run, Step, Then, Waiting, steps};
use super::server::{Cluster, Command, Event, Layout, Name, Phase, Refused};

pub(super) const LOST: &str = "the collection lacks an acknowledged write, or has one that was rolled back";
pub(super) const STUCK: &str = "one more run does not convert the collection";
pub(super) const FROZEN: &str = "the conversion has ended, and the kept collection is frozen";

/// The bit of the direct write.
const DIRECT: u8 = 0x40;
/// The operations of a client at most.
const OPERATIONS: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    cluster: Cluster,
    run: Option<Run>,
    /// Delayed commands. They may arrive in any order, or never.
    late: Vec<Command>,
    proxies: [Proxy; 2],
    is_direct_left: bool,
    /// The layout that the next run is to give.
    wanted: Layout,
    left: Budget,
    fault: Option<&'static str>,
}

type Next = Vec<(String, State)>;

impl State {
    /// The state after a run has got a reply, or none.
    fn continued(mut self, at: At) -> Self {
        if let Some(run) = &mut self.run {
            (run.at, run.waits) = (at, None);
        }
        self
    }

    fn with_run(&self, run: Run) -> Self {
        Self {
            run: Some(run),
            ..self.clone()
        }
    }

    /// Whether no run is active, and the last conversion has ended.
    fn is_converted(&self) -> bool {
        let now = self.cluster.now();
        let has_ended = now.record.is_none_or(|record| record.phase == Phase::Done);
        has_ended && self.run.is_none() && now.main().is_some_and(|main| main.layout == self.wanted)
    }

    /// Assumptions: a proxy's two lists take less time than a conversion, and one list less than a command.
    fn may_execute(&self, protocol: &Protocol, command: Command) -> bool {
        let spans = |proxy: &Proxy| matches!(proxy.position, Position::ListingCopy { is_spanning: true });
        if command.changes_name() && protocol.has(Part::ShortLists) && self.proxies.iter().any(spans) {
            return false;
        }
        let is_gap = matches!(command, Command::Rename { from: Name::Main, .. });
        let copy = self.cluster.now().at(Name::Copy).filter(|_| is_gap);
        let has_slow = copy.is_some_and(|copy| self.proxies.iter().any(|proxy| proxy.lists_longer_than(copy.uuid)));
        self.cluster.may_execute() && !(has_slow && protocol.has(Part::QuickLists))
    }

    /// Executes a command of a run.
    fn execute(&mut self, command: Command) -> Result<usize, Refused> {
        let done = self.cluster.run(command)?;
        if command.changes_name() {
            self.proxies.iter_mut().for_each(Proxy::span);
        }
        Ok(done)
    }

    /// The run is no more. The position in its record is before what it has not applied.
    fn without_run(mut self, protocol: &Protocol, run: &Run) -> Self {
        self.run = None;
        if protocol.late == Late::SwapAndRecords {
            return self;
        }
        if let (Some(stream), Some(document)) = (&mut self.cluster.stream, run.pending) {
            stream.insert(0, Event::Document(document, 0));
        }
        // Only a run that finds this phase continues the stream.
        let record = self.cluster.now().record;
        if !self.cluster.has_tail() && record.is_none_or(|record| record.phase != Phase::Following) {
            self.cluster.stream = None;
        }
        self
    }
}

impl Protocol {
    fn sent(&self, state: &State, command: Command, then: Then) -> Next {
        if !state.may_execute(self, command) {
            return Vec::new();
        }
        let mut executed = state.clone();
        let mut next = Vec::new();
        match executed.execute(command) {
            Err(_) => next.push((
                format!("{command:?} is refused"),
                executed.clone().continued(then.refused),
            )),
            Ok(entries) if entries > 0 && then.is_majority => {
                let mut waiting = executed.clone();
                if let Some(run) = &mut waiting.run {
                    run.waits = Some(Waiting { entries, then });
                }
                next.push((format!("{command:?} is executed"), waiting));
            }
            Ok(_) => next.push((format!("{command:?}"), executed.clone().continued(then.done))),
        }
        if state.left.cuts > 0 && self.may_be_late(command) {
            executed.left.cuts -= 1;
            let words = format!("{command:?}, and the reply is lost");
            next.push((words, executed.continued(then.silent)));
            let mut held = state.clone();
            held.left.cuts -= 1;
            held.late.push(command);
            next.push((format!("{command:?} is delayed"), held.continued(then.silent)));
        }
        next
    }

    fn run_moves(&self, state: &State, run: Run) -> Next {
        let mut next = Vec::new();
        if run.waits.is_none() {
            for step in steps(self, run, &state.cluster) {
                match step {
                    Step::Send { command, then } => next.extend(self.sent(state, command, then)),
                    Step::Go(run) => next.push((format!("the run continues at {:?}", run.at), state.with_run(run))),
                    Step::Deliver(run) => {
                        let mut delivered = state.clone();
                        let stream = delivered.cluster.stream.as_mut();
                        if let Some(event) = stream.map(|stream| stream.remove(0)) {
                            if self.late == Late::SwapAndRecords {
                                delivered.cluster.past.push(event);
                            }
                            delivered.run = Some(run.delivered(self, event));
                            next.push((format!("{event:?} is delivered"), delivered));
                        }
                    }
                    Step::Open(run) => {
                        let mut opened = state.clone();
                        opened.run = Some(run.opened(self, &mut opened.cluster));
                        next.push(("the stream is opened".to_owned(), opened));
                    }
                    Step::End(ending) => {
                        next.push((
                            format!("the run ends: {ending:?}"),
                            state.clone().without_run(self, &run),
                        ));
                    }
                }
            }
        }
        if state.left.kills > 0 {
            let mut killed = state.clone().without_run(self, &run);
            killed.left.kills -= 1;
            next.push(("the run is killed".to_owned(), killed));
        }
        if state.left.refusals > 0 && run.waits.is_none() && run.may_take_back() {
            let mut refused = state.clone().continued(At::ClearPlace);
            refused.left.refusals -= 1;
            next.push(("the run gives up the swap".to_owned(), refused));
        }
        next
    }

    fn replicated(state: &State) -> State {
        let mut state = state.clone();
        state.cluster.replicate();
        for proxy in &mut state.proxies {
            match proxy.position {
                Position::Waiting(1) => proxy.end(),
                Position::Waiting(entries) => proxy.position = Position::Waiting(entries - 1),
                _ => {}
            }
        }
        if let Some(waits) = state.run.as_mut().and_then(|run| run.waits.as_mut()) {
            waits.entries -= 1;
            if waits.entries == 0 {
                let done = waits.then.done;
                state = state.continued(done);
            }
        }
        if state.left.failovers == 0 {
            state.cluster.learn();
        }
        state
    }

    fn failed_over(state: &State, entries: usize) -> State {
        let mut state = state.clone();
        state.left.failovers -= 1;
        state.cluster.fail_over(entries);
        for proxy in &mut state.proxies {
            proxy.fail_over();
            // The client gets an error. It does not try again.
            if matches!(proxy.position, Position::Waiting(waited) if waited > entries) {
                proxy.end();
            }
        }
        let changes = state.cluster.now().changes;
        if let Some(run) = &mut state.run {
            // A time after all changes that are left.
            run.last = run.last.min(changes);
        }
        match state.run.and_then(|run| run.waits) {
            Some(waits) if waits.entries > entries => state.continued(waits.then.silent),
            _ => state,
        }
    }

    fn server_moves(&self, state: &State) -> Next {
        let mut next = Vec::new();
        if state.cluster.is_behind() {
            let mut learnt = state.clone();
            learnt.cluster.learn();
            next.push(("the new primary learns what the majority has".to_owned(), learnt));
        } else if state.cluster.has_tail() {
            next.push(("the majority gets an entry".to_owned(), Self::replicated(state)));
        }
        if state.left.failovers > 0 {
            for entries in 0..=state.cluster.tail_len() {
                let lost = state.cluster.tail_len() - entries;
                next.push((
                    format!("a failover loses {lost} entries"),
                    Self::failed_over(state, entries),
                ));
            }
        }
        for (index, command) in state.late.iter().enumerate() {
            if !state.may_execute(self, *command) {
                continue;
            }
            let mut arrived = state.clone();
            arrived.late.remove(index);
            let is_done = arrived.execute(*command).is_ok();
            next.push((format!("late: {command:?}, executed: {is_done}"), arrived));
        }
        next
    }

    fn client_moves(&self, state: &State) -> Next {
        let mut next = Vec::new();
        for (index, operations) in self.clients.iter().enumerate() {
            let mut moved = state.clone();
            let proxy = &mut moved.proxies[index];
            let ended = usize::from(proxy.ended);
            let Some(operation) = operations.get(ended).copied() else {
                continue;
            };
            let write = 1 << (index * OPERATIONS + ended);
            let before = proxy.position;
            if let Some(result) = proxy.step(self, &mut moved.cluster, Numbered { operation, write }) {
                moved.fault = result.err();
                let after = moved.proxies[index].position;
                let words = format!("proxy {index}, {operation:?}: {before:?}, then {after:?}");
                next.push((words, moved));
            }
        }
        if let Some(operation) = self.direct.filter(|_| state.is_direct_left)
            && state.cluster.may_execute()
        {
            let mut moved = state.clone();
            moved.is_direct_left = false;
            let write = DIRECT;
            write_directly(self, &mut moved.cluster, Numbered { operation, write });
            next.push((format!("direct write: {operation:?}"), moved));
        }
        next
    }

    /// What one more run makes of a state, if nothing happens to it.
    fn after_one_more(&self, state: &State) -> State {
        let mut state = State {
            cluster: state.cluster.settled(),
            run: Some(Run::new(state.wanted)),
            proxies: state.proxies.map(Proxy::settled),
            late: Vec::new(),
            left: Budget::default(),
            ..state.clone()
        };
        for _ in 0..200 {
            let Some(run) = state.run else {
                return state;
            };
            let Some((_, next)) = self.run_moves(&state, run).into_iter().next() else {
                return state;
            };
            state = next;
        }
        state
    }

    /// A fault of a state without a run.
    fn unmended(&self, state: &State) -> Option<String> {
        let now = state.cluster.now();
        if now.record.is_some_and(|record| record.phase == Phase::Done)
            && now.at(Name::Kept).is_some_and(|kept| kept.is_frozen)
        {
            return Some(FROZEN.to_owned());
        }
        let after = self.after_one_more(state);
        let now = after.cluster.now();
        let is_converted = now
            .main()
            .is_some_and(|main| main.layout == after.wanted && !main.is_frozen && main.documents == now.expected);
        if after.run.is_none() && is_converted {
            return None;
        }
        Some(STUCK.to_owned())
    }
}

impl Model for Protocol {
    type State = State;

    fn first(&self) -> State {
        State {
            cluster: Cluster::new(self.from, self.lag),
            run: None,
            late: Vec::new(),
            proxies: [Proxy::new(self.from); 2],
            is_direct_left: self.direct.is_some(),
            wanted: self.to,
            left: self.budget,
            fault: None,
        }
    }

    fn next(&self, state: &State) -> Next {
        let mut next = self.client_moves(state);
        next.extend(self.server_moves(state));
        match state.run {
            Some(run) => next.extend(self.run_moves(state, run)),
            None if state.left.runs > 0 => {
                let mut begun = state.with_run(Run::new(state.wanted));
                begun.left.runs -= 1;
                next.push(("a run begins".to_owned(), begun));
            }
            None => {}
        }
        if state.left.returns > 0 && state.is_converted() {
            let mut ordered = state.clone();
            ordered.left.returns -= 1;
            ordered.wanted = self.from(state.wanted);
            next.push(("the former layout is wanted".to_owned(), ordered));
        }
        next
    }

    fn fault(&self, state: &State) -> Option<String> {
        let fault = self.any_fault(state);
        fault.filter(|fault| self.only.is_empty() || self.only.contains(&fault.as_str()))
    }
}

impl Protocol {
    fn any_fault(&self, state: &State) -> Option<String> {
        if let Some(fault) = state.fault {
            return Some(fault.to_owned());
        }
        let now = state.cluster.now();
        if now.main().is_some_and(|main| main.documents != now.expected) {
            return Some(LOST.to_owned());
        }
        match state.run {
            Some(_) => None,
            None => self.unmended(state),
        }
    }
}
