//! Both protocols before fences were added. The search must find their known bugs.

use super::server::{Command, Name, Server};
use super::system::{Ending, Protocol, Run, Step, Then};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum At {
    Look,
    Make,
    Made,
    Fill,
    Freeze,
    Compare,
    RenamePlain,
    Rename,
    IsRenamed,
    TakeBack,
    Done,
    GiveUp,
}

/// `compact`.
pub(super) struct CompactBefore;

/// `setup --pack`.
pub(super) struct PackBefore;

fn or(command: Command, done: At, otherwise: At) -> Step<At> {
    let then = Then {
        done,
        refused: otherwise,
        silent: otherwise,
    };
    Step::Send { command, then }
}

/// Sets the validator without a check of the old one.
fn freeze(freezes: bool) -> Command {
    Command::CollMod {
        uuid: None,
        index: None,
        freezes: Some(freezes),
    }
}

fn rename(from: Name, to: Name, dropped: Option<u8>) -> Command {
    let uuid = None;
    Command::Rename {
        from,
        uuid,
        to,
        dropped,
    }
}

const CREATE: Command = Command::Create {
    name: Name::Copy,
    is_place: false,
};

fn store(run: &Run<At>, server: &Server) -> Command {
    Command::Store {
        name: Name::Copy,
        uuid: run.copy.unwrap_or(u8::MAX),
        items: server.at(Name::Main).map_or(0, |main| main.items),
    }
}

fn made(run: &mut Run<At>, server: &Server) -> Step<At> {
    run.copy = server.at(Name::Copy).map(|copy| copy.uuid);
    Step::Go(if run.copy.is_some() { At::Fill } else { At::TakeBack })
}

/// Thaws the collection by one command without a check of the result.
fn take_back(server: &Server) -> Step<At> {
    match server.at(Name::Main) {
        Some(main) if main.is_frozen => or(freeze(false), At::Done, At::GiveUp),
        _ => Step::End(Ending::Well),
    }
}

impl Protocol for CompactBefore {
    type At = At;

    fn begin(&self) -> At {
        At::Look
    }

    fn step(&self, run: &mut Run<At>, server: &Server) -> Step<At> {
        let main = server.at(Name::Main);
        match run.at {
            At::Look => {
                let Some(main) = main else {
                    return Step::End(Ending::Unfinished);
                };
                (run.main, run.was_frozen) = (main.uuid, main.is_frozen);
                Step::Go(if server.at(Name::Copy).is_some() {
                    At::Made
                } else {
                    At::Make
                })
            }
            At::Make => or(CREATE, At::Made, At::TakeBack),
            At::Made => made(run, server),
            At::Fill if run.was_frozen => Step::Go(At::Compare),
            At::Fill => or(store(run, server), At::Freeze, At::TakeBack),
            At::Freeze => or(freeze(true), At::Compare, At::TakeBack),
            At::Compare => or(store(run, server), At::Rename, At::TakeBack),
            At::Rename => or(rename(Name::Copy, Name::Main, Some(run.main)), At::Done, At::IsRenamed),
            At::IsRenamed if main.is_some_and(|main| Some(main.uuid) == run.copy) => Step::End(Ending::Well),
            At::IsRenamed | At::TakeBack => take_back(server),
            At::Done => Step::End(Ending::Well),
            At::GiveUp | At::RenamePlain => Step::End(Ending::Unfinished),
        }
    }
}

impl Protocol for PackBefore {
    type At = At;

    fn begin(&self) -> At {
        At::Look
    }

    fn step(&self, run: &mut Run<At>, server: &Server) -> Step<At> {
        let (main, kept, copy) = (server.at(Name::Main), server.at(Name::Kept), server.at(Name::Copy));
        match run.at {
            At::Look => match (main, kept, copy) {
                (Some(main), None, _) if main.uuid == 0 => {
                    run.main = main.uuid;
                    Step::Go(At::Make)
                }
                (None, Some(kept), Some(copy)) if kept.items == copy.items => {
                    run.copy = Some(copy.uuid);
                    Step::Go(At::Rename)
                }
                (Some(_), Some(_), None) => Step::End(Ending::Well),
                _ => Step::End(Ending::Unfinished),
            },
            At::Make if copy.is_some() => {
                let (name, uuid) = (Name::Copy, None);
                or(Command::Drop { name, uuid }, At::Make, At::TakeBack)
            }
            At::Make => or(CREATE, At::Made, At::TakeBack),
            At::Made => match made(run, server) {
                Step::Go(At::Fill) => Step::Go(At::Freeze),
                other => other,
            },
            At::Freeze => or(freeze(true), At::Fill, At::TakeBack),
            At::Fill => or(store(run, server), At::Compare, At::TakeBack),
            At::Compare => {
                let is_same = main.map(|main| main.items) == copy.map(|copy| copy.items);
                Step::Go(if is_same { At::RenamePlain } else { At::TakeBack })
            }
            At::RenamePlain => or(rename(Name::Main, Name::Kept, None), At::Rename, At::TakeBack),
            At::TakeBack if kept.is_some_and(|kept| kept.uuid == run.main) => {
                Step::Go(if run.copy.is_some() { At::Rename } else { At::GiveUp })
            }
            At::TakeBack => take_back(server),
            At::Rename => or(rename(Name::Copy, Name::Main, None), At::Done, At::IsRenamed),
            At::IsRenamed if main.is_some_and(|main| Some(main.uuid) == run.copy) => Step::End(Ending::Well),
            At::Done => Step::End(Ending::Well),
            At::IsRenamed | At::GiveUp => Step::End(Ending::Unfinished),
        }
    }
}
