//! `mongoshape compact`, step by step: `maintenance/compact.rs` and `maintenance/swap`.

use super::server::{Command, Half, Name, Server};
use super::system::{Ending, Protocol, Run, Step, Then};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum At {
    Look,
    TakeDown(Half),
    PutUp,
    DropWorking,
    ThawForNow,
    Make,
    Adopt,
    Made,
    IsFenced,
    Fill,
    Freeze,
    Compare,
    Rename,
    DropAfterRename,
    IsRenamed,
    PutAside,
    PutAway,
    DropFreeze,
    IsFrozen,
    Thaw,
    DropThaw,
    Done,
    GiveUp,
}

/// As it is.
pub(super) struct Compact;

/// Whatever is not answered is sent again.
fn insist(command: Command, at: At, then: At) -> Step<At> {
    let then = Then {
        done: then,
        refused: then,
        silent: at,
    };
    Step::Send { command, then }
}

/// Whatever is not done ends the run.
fn or(command: Command, done: At, otherwise: At) -> Step<At> {
    let then = Then {
        done,
        refused: otherwise,
        silent: otherwise,
    };
    Step::Send { command, then }
}

impl Compact {
    fn look(run: &mut Run<At>, server: &Server) -> Step<At> {
        let Some(main) = server.at(Name::Main) else {
            return Step::End(Ending::Unfinished);
        };
        (run.main, run.was_frozen) = (main.uuid, main.is_frozen);
        Step::Go(if main.fence.is_some() {
            At::TakeDown(Half::Freeze)
        } else {
            At::PutUp
        })
    }

    fn take_down(run: &Run<At>, server: &Server, half: Half) -> Step<At> {
        let next = match half {
            Half::Freeze => At::TakeDown(Half::Thaw),
            Half::Thaw => At::PutUp,
        };
        let fence = server.at(Name::Main).and_then(|main| main.fence);
        let Some(fence) = fence.filter(|fence| fence.run != run.id) else {
            return Step::Go(next);
        };
        let command = Command::DropIndex {
            uuid: run.main,
            run: fence.run,
            half,
        };
        let then = Then {
            done: next,
            refused: next,
            silent: At::Look,
        };
        Step::Send { command, then }
    }

    /// The copy of this run, filled and compared.
    fn copying(run: &mut Run<At>, server: &Server) -> Step<At> {
        let (name, uuid) = (Name::Copy, run.copy);
        let fence = |half| Some((run.id, half));
        let modification = |half, freezes| Command::CollMod {
            uuid: Some(run.main),
            index: fence(half),
            freezes,
        };
        let items = server.at(Name::Main).filter(|main| main.uuid == run.main);
        let store = |uuid: u8| Command::Store {
            name,
            uuid,
            items: items.map_or(0, |main| main.items),
        };
        match (run.at, uuid) {
            (At::ThawForNow, _) => or(modification(Half::Thaw, Some(false)), At::Make, At::PutAway),
            (At::Make, _) => match server.at(Name::Stopped) {
                Some(stopped) => {
                    run.copy = Some(stopped.uuid);
                    Step::Go(At::Adopt)
                }
                None => or(Command::Create { name, is_place: false }, At::Made, At::PutAway),
            },
            (At::Adopt, uuid) => {
                let (from, to, dropped) = (Name::Stopped, name, None);
                let rename = Command::Rename {
                    from,
                    uuid,
                    to,
                    dropped,
                };
                or(rename, At::IsFenced, At::PutAway)
            }
            (At::Made, _) => {
                run.copy = server.at(name).map(|copy| copy.uuid);
                Step::Go(if run.copy.is_some() { At::IsFenced } else { At::PutAway })
            }
            (At::IsFenced, _) => or(modification(Half::Freeze, None), At::Fill, At::PutAway),
            (At::Fill, Some(uuid)) => or(store(uuid), At::Freeze, At::PutAway),
            (At::Freeze, _) => or(modification(Half::Freeze, Some(true)), At::Compare, At::PutAway),
            (At::Compare, Some(uuid)) => or(store(uuid), At::Rename, At::PutAway),
            (At::Rename, uuid) => {
                let (to, dropped) = (Name::Main, Some(run.main));
                let rename = Command::Rename {
                    from: name,
                    uuid,
                    to,
                    dropped,
                };
                or(rename, At::IsRenamed, At::DropAfterRename)
            }
            (at, None) => unreachable!("{at:?} without a copy"),
            (at, Some(_)) => unreachable!("{at:?}"),
        }
    }

    fn taking_back(run: &Run<At>, server: &Server) -> Step<At> {
        let (name, main) = (Name::Copy, server.at(Name::Main));
        let index = |half| Command::DropIndex {
            uuid: run.main,
            run: run.id,
            half,
        };
        let drop = |uuid| Command::Drop { name, uuid: Some(uuid) };
        match (run.at, run.copy) {
            (At::DropAfterRename, Some(uuid)) => insist(drop(uuid), At::DropAfterRename, At::IsRenamed),
            (At::IsRenamed, copy) if main.is_some_and(|main| Some(main.uuid) == copy) => Step::End(Ending::Well),
            (At::IsRenamed, _) => Step::Go(At::PutAway),
            (At::PutAside, uuid) => {
                let (from, to, dropped) = (name, Name::Stopped, None);
                let rename = Command::Rename {
                    from,
                    uuid,
                    to,
                    dropped,
                };
                or(rename, At::DropFreeze, At::PutAway)
            }
            (At::PutAway, Some(uuid)) => insist(drop(uuid), At::PutAway, At::DropFreeze),
            (At::PutAway, None) => insist(Command::Drop { name, uuid: None }, At::PutAway, At::DropFreeze),
            (At::DropFreeze, _) => insist(index(Half::Freeze), At::DropFreeze, At::IsFrozen),
            (At::IsFrozen, _) => {
                let is_frozen = main.is_some_and(|main| main.uuid == run.main && main.is_frozen);
                Step::Go(if is_frozen { At::Thaw } else { At::DropThaw })
            }
            (At::Thaw, _) => {
                let command = Command::CollMod {
                    uuid: Some(run.main),
                    index: Some((run.id, Half::Thaw)),
                    freezes: Some(false),
                };
                // Where the index is gone, another run has replaced the fence.
                let then = Then {
                    done: At::DropThaw,
                    refused: At::GiveUp,
                    silent: At::Thaw,
                };
                Step::Send { command, then }
            }
            (At::DropThaw, _) => insist(index(Half::Thaw), At::DropThaw, At::Done),
            (At::Done, _) => Step::End(Ending::Well),
            (At::GiveUp, _) => Step::End(Ending::Unfinished),
            (at, copy) => unreachable!("{at:?} with {copy:?}"),
        }
    }
}

impl Protocol for Compact {
    type At = At;

    fn begin(&self) -> At {
        At::Look
    }

    fn step(&self, run: &mut Run<At>, server: &Server) -> Step<At> {
        match run.at {
            At::Look => Self::look(run, server),
            At::TakeDown(half) => Self::take_down(run, server, half),
            At::PutUp => {
                let command = Command::CreateIndexes {
                    uuid: run.main,
                    run: run.id,
                };
                or(command, At::DropWorking, At::GiveUp)
            }
            At::DropWorking => {
                let next = if run.was_frozen { At::ThawForNow } else { At::Make };
                let command = Command::Drop {
                    name: Name::Copy,
                    uuid: None,
                };
                let then = Then {
                    done: next,
                    refused: next,
                    silent: At::PutAway,
                };
                Step::Send { command, then }
            }
            At::ThawForNow
            | At::Make
            | At::Adopt
            | At::Made
            | At::IsFenced
            | At::Fill
            | At::Freeze
            | At::Compare
            | At::Rename => Self::copying(run, server),
            _ => Self::taking_back(run, server),
        }
    }

    fn stopped(&self, at: At) -> Option<At> {
        (at == At::Freeze).then_some(At::PutAside)
    }
}
