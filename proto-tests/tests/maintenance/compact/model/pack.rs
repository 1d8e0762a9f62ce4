//! `mongoshape setup --pack`, step by step: `maintenance/setup/pack.rs` and `maintenance/swap`.

use super::server::{Command, Half, Name, Server};
use super::system::{Ending, Protocol, Run, Step, Then};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum At {
    Look,
    TakeDown(Half),
    PutUp,
    ClearPlace,
    HasNotBegun,
    DropCopy,
    Make,
    Made,
    KeepPlace,
    Kept,
    Freeze,
    Fill,
    Compare,
    RenamePlain,
    DropPlace,
    HasBegun,
    RenamePages,
    IsRenamed,
    TakeBack,
    TakeBackOrNot,
    DropFreeze,
    IsFrozen,
    Thaw,
    DropThaw,
    DropOwnCopy,
    Done,
    GiveUp,
}

/// As it is.
pub(super) struct Pack;

fn insist(command: Command, at: At, then: At) -> Step<At> {
    let then = Then {
        done: then,
        refused: then,
        silent: at,
    };
    Step::Send { command, then }
}

fn or(command: Command, done: At, otherwise: At) -> Step<At> {
    let then = Then {
        done,
        refused: otherwise,
        silent: otherwise,
    };
    Step::Send { command, then }
}

/// Where there is nothing to drop, that is as well.
fn drop_or(name: Name, uuid: Option<u8>, (then, silent): (At, At)) -> Step<At> {
    let command = Command::Drop { name, uuid };
    let (done, refused) = (then, then);
    Step::Send {
        command,
        then: Then { done, refused, silent },
    }
}

impl Pack {
    fn look(run: &mut Run<At>, server: &Server) -> Step<At> {
        let (main, kept, copy) = (server.at(Name::Main), server.at(Name::Kept), server.at(Name::Copy));
        let is_kept = kept.is_some_and(|kept| !kept.is_place);
        match (main, kept, copy) {
            // It was packed.
            (Some(_), Some(_), _) if is_kept => Step::End(Ending::Well),
            (Some(main), _, _) => {
                (run.main, run.was_frozen) = (main.uuid, main.is_frozen);
                Step::Go(At::TakeDown(Half::Freeze))
            }
            (None, Some(kept), Some(copy)) if is_kept && kept.items == copy.items => {
                (run.main, run.copy) = (kept.uuid, Some(copy.uuid));
                Step::Go(At::RenamePages)
            }
            // The copy was dropped by a run that did not know of it, which may have made another.
            (None, Some(kept), copy) if is_kept && copy.is_none_or(|copy| copy.items == 0) => {
                let command = Command::Rename {
                    from: Name::Kept,
                    uuid: Some(kept.uuid),
                    to: Name::Main,
                    dropped: None,
                };
                or(command, At::Look, At::GiveUp)
            }
            _ => Step::End(Ending::Unfinished),
        }
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
            silent: At::GiveUp,
        };
        Step::Send { command, then }
    }

    fn preparing(run: &mut Run<At>, server: &Server) -> Step<At> {
        let place = server.at(Name::Kept).filter(|kept| kept.is_place).map(|kept| kept.uuid);
        match run.at {
            At::ClearPlace => match place {
                Some(place) => drop_or(Name::Kept, Some(place), (At::HasNotBegun, At::TakeBack)),
                None => Step::Go(At::HasNotBegun),
            },
            // From here on no earlier run's renaming can be done.
            At::HasNotBegun => {
                let has_begun = server.at(Name::Kept).is_some_and(|kept| kept.uuid == run.main);
                Step::Go(if has_begun { At::GiveUp } else { At::DropCopy })
            }
            At::DropCopy => match server.at(Name::Copy) {
                // By its UUID: one that arrives late must not drop the copy of the next run behind the first
                // renaming.
                Some(copy) => drop_or(Name::Copy, Some(copy.uuid), (At::Make, At::TakeBack)),
                None => Step::Go(At::Make),
            },
            At::Make => {
                let (name, is_place) = (Name::Copy, false);
                or(Command::Create { name, is_place }, At::Made, At::TakeBack)
            }
            At::Made => {
                run.copy = server.at(Name::Copy).map(|copy| copy.uuid);
                Step::Go(At::KeepPlace)
            }
            At::KeepPlace => {
                let (name, is_place) = (Name::Kept, true);
                or(Command::Create { name, is_place }, At::Kept, At::TakeBack)
            }
            At::Kept => {
                run.place = place;
                let is_whole = run.copy.is_some() && run.place.is_some();
                Step::Go(if is_whole { At::Freeze } else { At::TakeBack })
            }
            at => unreachable!("{at:?}"),
        }
    }

    fn exchanging(run: &Run<At>, server: &Server) -> Step<At> {
        let (main, kept, copy) = (server.at(Name::Main), server.at(Name::Kept), server.at(Name::Copy));
        match run.at {
            At::Freeze => {
                let command = Command::CollMod {
                    uuid: Some(run.main),
                    index: Some((run.id, Half::Freeze)),
                    freezes: Some(true),
                };
                or(command, At::Fill, At::TakeBack)
            }
            At::Fill => {
                let command = Command::Store {
                    name: Name::Copy,
                    uuid: run.copy.unwrap_or(u8::MAX),
                    items: main.map_or(0, |main| main.items),
                };
                or(command, At::Compare, At::TakeBack)
            }
            At::Compare => {
                let is_same = main.map(|main| main.items) == copy.map(|copy| copy.items);
                Step::Go(if is_same { At::RenamePlain } else { At::TakeBack })
            }
            At::RenamePlain => {
                let command = Command::Rename {
                    from: Name::Main,
                    uuid: Some(run.main),
                    to: Name::Kept,
                    dropped: run.place,
                };
                or(command, At::RenamePages, At::DropPlace)
            }
            At::DropPlace => drop_or(Name::Kept, run.place, (At::HasBegun, At::DropPlace)),
            At::HasBegun => {
                let has_begun = kept.is_some_and(|kept| kept.uuid == run.main);
                Step::Go(if has_begun { At::RenamePages } else { At::TakeBack })
            }
            At::RenamePages => {
                let command = Command::Rename {
                    from: Name::Copy,
                    uuid: run.copy,
                    to: Name::Main,
                    dropped: None,
                };
                or(command, At::IsRenamed, At::IsRenamed)
            }
            At::IsRenamed => {
                let is_renamed = main.is_some_and(|main| Some(main.uuid) == run.copy);
                Step::Go(if is_renamed { At::Done } else { At::TakeBack })
            }
            at => unreachable!("{at:?}"),
        }
    }

    fn taking_back(run: &Run<At>, server: &Server) -> Step<At> {
        let (main, kept) = (server.at(Name::Main), server.at(Name::Kept));
        let index = |half| Command::DropIndex {
            uuid: run.main,
            run: run.id,
            half,
        };
        match run.at {
            At::TakeBack => match kept.filter(|kept| kept.is_place) {
                Some(place) => drop_or(Name::Kept, Some(place.uuid), (At::TakeBackOrNot, At::TakeBack)),
                None => Step::Go(At::TakeBackOrNot),
            },
            At::TakeBackOrNot => {
                let has_begun = kept.is_some_and(|kept| kept.uuid == run.main);
                Step::Go(if has_begun { At::GiveUp } else { At::DropFreeze })
            }
            At::DropFreeze => insist(index(Half::Freeze), At::DropFreeze, At::IsFrozen),
            At::IsFrozen => {
                let is_frozen = main.is_some_and(|main| main.uuid == run.main && main.is_frozen);
                Step::Go(if is_frozen { At::Thaw } else { At::DropThaw })
            }
            At::Thaw => {
                let command = Command::CollMod {
                    uuid: Some(run.main),
                    index: Some((run.id, Half::Thaw)),
                    freezes: Some(false),
                };
                let then = Then {
                    done: At::DropThaw,
                    refused: At::GiveUp,
                    silent: At::Thaw,
                };
                Step::Send { command, then }
            }
            At::DropThaw => insist(index(Half::Thaw), At::DropThaw, At::DropOwnCopy),
            At::DropOwnCopy => match run.copy {
                Some(copy) => drop_or(Name::Copy, Some(copy), (At::Done, At::DropOwnCopy)),
                None => Step::Go(At::Done),
            },
            At::Done => Step::End(Ending::Well),
            _ => Step::End(Ending::Unfinished),
        }
    }
}

impl Protocol for Pack {
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
                or(command, At::ClearPlace, At::GiveUp)
            }
            At::ClearPlace | At::HasNotBegun | At::DropCopy | At::Make | At::Made | At::KeepPlace | At::Kept => {
                Self::preparing(run, server)
            }
            At::Freeze
            | At::Fill
            | At::Compare
            | At::RenamePlain
            | At::DropPlace
            | At::HasBegun
            | At::RenamePages
            | At::IsRenamed => Self::exchanging(run, server),
            _ => Self::taking_back(run, server),
        }
    }
}
