//! The part of mongod that a swap depends on. `delayed_commands.rs` compares these assumptions with a real mongod.

/// A collection's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Name {
    /// That which clients know.
    Main,
    /// That of the copy.
    Copy,
    /// That of a copy which a run was stopped at.
    Stopped,
    /// That under which plain documents are kept.
    Kept,
}

/// The two indexes of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Half {
    Freeze,
    Thaw,
}

/// The indexes of a fence that are there, and the run that has put it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Fence {
    pub(super) run: u8,
    pub(super) freeze: bool,
    pub(super) thaw: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Collection {
    pub(super) uuid: u8,
    /// The writes that it holds, a bit each.
    pub(super) items: u8,
    pub(super) is_frozen: bool,
    pub(super) is_place: bool,
    pub(super) fence: Option<Fence>,
}

/// A command. `None` in place of a UUID: it is about whichever collection has the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Command {
    Create {
        name: Name,
        is_place: bool,
    },
    Drop {
        name: Name,
        uuid: Option<u8>,
    },
    CreateIndexes {
        uuid: u8,
        run: u8,
    },
    DropIndex {
        uuid: u8,
        run: u8,
        half: Half,
    },
    /// With the index that it demands, and what it makes of the validator.
    CollMod {
        uuid: Option<u8>,
        index: Option<(u8, Half)>,
        freezes: Option<bool>,
    },
    /// With the UUID of what is dropped; `None` where there must be nothing.
    Rename {
        from: Name,
        uuid: Option<u8>,
        to: Name,
        dropped: Option<u8>,
    },
    /// Makes that collection hold these.
    Store {
        name: Name,
        uuid: u8,
        items: u8,
    },
}

/// Why mongod does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NotFound,
    Exists,
    IndexNotFound,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Server {
    collections: [Option<Collection>; 4],
    next_uuid: u8,
}

impl Server {
    /// With one collection, whose UUID is 0.
    pub(super) fn new() -> Self {
        let mut server = Self {
            collections: [None; 4],
            next_uuid: 0,
        };
        let made = server.create(Name::Main, false);
        assert!(made.is_ok());
        server
    }

    pub(super) fn at(&self, name: Name) -> Option<&Collection> {
        self.collections[name as usize].as_ref()
    }

    fn found(&mut self, name: Name, uuid: Option<u8>) -> Result<&mut Collection, Refusal> {
        let found = self.collections[name as usize].as_mut();
        found
            .filter(|found| uuid.is_none_or(|uuid| uuid == found.uuid))
            .ok_or(Refusal::NotFound)
    }

    pub(super) fn run(&mut self, command: Command) -> Result<(), Refusal> {
        match command {
            Command::Create { name, is_place } => self.create(name, is_place),
            Command::Drop { name, uuid } => {
                self.found(name, uuid)?;
                self.collections[name as usize] = None;
                Ok(())
            }
            Command::CreateIndexes { uuid, run } => {
                let found = self.found(Name::Main, Some(uuid))?;
                if found.fence.is_some() {
                    return Err(Refusal::Exists);
                }
                let (freeze, thaw) = (true, true);
                found.fence = Some(Fence { run, freeze, thaw });
                Ok(())
            }
            Command::DropIndex { uuid, run, half } => self.drop_index(uuid, (run, half)),
            Command::CollMod { uuid, index, freezes } => {
                let found = self.found(Name::Main, uuid)?;
                if index.is_some_and(|index| !has(*found, index)) {
                    return Err(Refusal::IndexNotFound);
                }
                found.is_frozen = freezes.unwrap_or(found.is_frozen);
                Ok(())
            }
            Command::Rename {
                from,
                uuid,
                to,
                dropped,
            } => {
                let renamed = *self.found(from, uuid)?;
                let there = self.at(to).map(|there| there.uuid);
                if there != dropped {
                    return Err(Refusal::Exists);
                }
                self.collections[from as usize] = None;
                self.collections[to as usize] = Some(renamed);
                Ok(())
            }
            Command::Store { name, uuid, items } => {
                self.found(name, Some(uuid))?.items = items;
                Ok(())
            }
        }
    }

    /// A client's write; whether it was done.
    pub(super) fn write(&mut self, items: u8) -> bool {
        let thawed = self.found(Name::Main, None).ok().filter(|found| !found.is_frozen);
        let is_done = thawed.is_some();
        if let Some(found) = thawed {
            found.items |= items;
        }
        is_done
    }

    fn create(&mut self, name: Name, is_place: bool) -> Result<(), Refusal> {
        if self.at(name).is_some() {
            return Err(Refusal::Exists);
        }
        let uuid = self.next_uuid;
        self.next_uuid += 1;
        self.collections[name as usize] = Some(Collection {
            uuid,
            items: 0,
            is_frozen: false,
            is_place,
            fence: None,
        });
        Ok(())
    }

    fn drop_index(&mut self, uuid: u8, index: (u8, Half)) -> Result<(), Refusal> {
        let found = self.found(Name::Main, Some(uuid))?;
        if !has(*found, index) {
            return Err(Refusal::IndexNotFound);
        }
        if let Some(fence) = &mut found.fence {
            match index.1 {
                Half::Freeze => fence.freeze = false,
                Half::Thaw => fence.thaw = false,
            }
        }
        found.fence = found.fence.filter(|fence| fence.freeze || fence.thaw);
        Ok(())
    }
}

fn has(collection: Collection, (run, half): (u8, Half)) -> bool {
    let is_there = |fence: &Fence| match half {
        Half::Freeze => fence.freeze,
        Half::Thaw => fence.thaw,
    };
    collection
        .fence
        .is_some_and(|fence| fence.run == run && is_there(&fence))
}
