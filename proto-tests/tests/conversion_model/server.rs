//! The part of mongod that a conversion depends on: collections with UUIDs, a log of which the majority has a
//! part, and a change stream.

/// Documents of the converted collection. The first exists at the beginning.
pub(super) const DOCUMENTS: usize = 2;
/// The UUID of the collection that is converted first.
pub(super) const SOURCE: u8 = 0;

/// The state of each document: 0 if it is missing, else [`PRESENT`] and a bit for each write that it
/// contains.
pub(super) type Documents = [u8; DOCUMENTS];
pub(super) const PRESENT: u8 = 0x80;

/// A collection's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// That which applications use.
    Main,
    Copy,
    /// That under which the collection is kept in its former layout.
    Kept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Layout {
    Plain,
    Pages,
    /// Pages of another shape.
    OtherPages,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Collection {
    pub(super) uuid: u8,
    pub(super) layout: Layout,
    pub(super) documents: Documents,
    pub(super) is_frozen: bool,
    pub(super) is_place: bool,
}

/// The phase in a conversion's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Copying,
    Following,
    Swapping,
    Done,
}

/// A conversion's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Record {
    pub(super) phase: Phase,
    /// The UUIDs of the converted collection and of its copy.
    pub(super) source: u8,
    pub(super) copy: u8,
    /// The position in the change stream, if records may arrive late.
    pub(super) position: u8,
}

/// A command of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Command {
    Create {
        name: Name,
        layout: Layout,
        is_place: bool,
    },
    /// `None`: whatever has the name.
    Drop {
        name: Name,
        uuid: Option<u8>,
    },
    /// Sets or removes the validator.
    Freeze {
        name: Name,
        uuid: u8,
        is_frozen: bool,
    },
    /// With the UUID of the collection that is dropped. `None`: the name must be free.
    Rename {
        from: Name,
        uuid: u8,
        to: Name,
        dropped: Option<u8>,
    },
    /// `None`: the record is dropped.
    Write(Option<Record>),
    /// Makes a document of the copy equal to this.
    Store {
        document: usize,
        value: u8,
    },
}

impl Command {
    /// Whether it changes the name of the collection, or of the copy.
    pub(super) fn changes_name(self) -> bool {
        match self {
            Self::Create { name, .. } | Self::Drop { name, .. } => name != Name::Kept,
            Self::Rename { .. } => true,
            Self::Freeze { .. } | Self::Write(_) | Self::Store { .. } => false,
        }
    }
}

/// Why mongod does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused;

/// What the change stream returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// The document, and the number of the change.
    Document(usize, u8),
    /// The converted collection was renamed, and this collection was dropped.
    Renamed(Option<u8>),
}

/// The stored state after a part of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stored {
    collections: [Option<Collection>; 3],
    pub(super) record: Option<Record>,
    /// What applications have written, without any conversion.
    pub(super) expected: Documents,
    /// The number of changes by applications: the time.
    pub(super) changes: u8,
}

impl Stored {
    pub(super) fn at(&self, name: Name) -> Option<&Collection> {
        self.collections[name as usize].as_ref()
    }

    /// The collection that applications use.
    pub(super) fn main(&self) -> Option<&Collection> {
        self.at(Name::Main)
    }

    /// The UUID of the placeholder with that name.
    pub(super) fn place(&self, name: Name) -> Option<u8> {
        self.at(name).filter(|found| found.is_place).map(|place| place.uuid)
    }

    pub(super) fn is(&self, name: Name, uuid: u8) -> bool {
        self.at(name).is_some_and(|found| found.uuid == uuid)
    }

    /// The documents with that name. A missing collection has none.
    pub(super) fn documents(&self, name: Name) -> Documents {
        self.at(name).map_or([0; DOCUMENTS], |found| found.documents)
    }

    pub(super) fn main_mut(&mut self) -> &mut Option<Collection> {
        &mut self.collections[Name::Main as usize]
    }

    fn found(&mut self, name: Name, uuid: u8) -> Result<&mut Collection, Refused> {
        let found = self.collections[name as usize].as_mut();
        found.filter(|found| found.uuid == uuid).ok_or(Refused)
    }

    fn run(&mut self, command: Command, next_uuid: &mut u8, watched: u8) -> Result<Option<Event>, Refused> {
        match command {
            Command::Create { name, layout, is_place } => {
                if self.at(name).is_some() {
                    return Err(Refused);
                }
                self.collections[name as usize] = Some(Collection {
                    uuid: *next_uuid,
                    layout,
                    documents: [0; DOCUMENTS],
                    is_frozen: false,
                    is_place,
                });
                *next_uuid += 1;
            }
            Command::Drop { name, uuid } => {
                let there = self.at(name).ok_or(Refused)?.uuid;
                self.found(name, uuid.unwrap_or(there))?;
                self.collections[name as usize] = None;
            }
            Command::Freeze { name, uuid, is_frozen } => self.found(name, uuid)?.is_frozen = is_frozen,
            Command::Rename {
                from,
                uuid,
                to,
                dropped,
            } => {
                let renamed = *self.found(from, uuid)?;
                if self.at(to).map(|there| there.uuid) != dropped {
                    return Err(Refused);
                }
                self.collections[from as usize] = None;
                self.collections[to as usize] = Some(renamed);
                return Ok((uuid == watched).then_some(Event::Renamed(dropped)));
            }
            Command::Write(record) => self.record = record,
            Command::Store { document, value } => {
                let copy = self.collections[Name::Copy as usize].as_mut().ok_or(Refused)?;
                copy.documents[document] = value;
            }
        }
        Ok(None)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    stored: Stored,
    event: Option<Event>,
}

/// A replica set. A command is executed by the primary. Its entry in the log is replicated later, or lost in
/// a failover.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cluster {
    /// What the majority has.
    committed: Stored,
    /// What the majority had before the last change of a document.
    before: Stored,
    /// Whether a new primary does not know yet that the majority has more than `before`.
    is_behind: bool,
    /// What the majority does not have yet.
    tail: Vec<Entry>,
    /// Events that were not delivered. `None`: no stream is open.
    pub(super) stream: Option<Vec<Event>>,
    /// Events that were delivered, if records may arrive late: a stream may be continued before them.
    pub(super) past: Vec<Event>,
    /// The UUID of the collection whose changes the stream returns.
    pub(super) watched: u8,
    pub(super) next_uuid: u8,
    /// The longest tail. 0: the majority has everything at once.
    lag: usize,
}

impl Cluster {
    /// With one collection of one document.
    pub(super) fn new(layout: Layout, lag: usize) -> Self {
        let mut documents = [0; DOCUMENTS];
        documents[0] = PRESENT;
        let main = Collection {
            uuid: SOURCE,
            layout,
            documents,
            is_frozen: false,
            is_place: false,
        };
        let stored = Stored {
            collections: [Some(main), None, None],
            record: None,
            expected: documents,
            changes: 0,
        };
        Self {
            committed: stored,
            before: stored,
            is_behind: false,
            tail: Vec::new(),
            stream: None,
            past: Vec::new(),
            watched: SOURCE,
            next_uuid: SOURCE + 1,
            lag,
        }
    }

    /// The primary's state.
    pub(super) fn now(&self) -> &Stored {
        self.tail.last().map_or(&self.committed, |entry| &entry.stored)
    }

    /// The state that the majority has, as the primary knows it.
    pub(super) fn majority(&self) -> &Stored {
        if self.is_behind { &self.before } else { &self.committed }
    }

    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// The next event that the primary returns.
    pub(super) fn event(&self) -> Option<Event> {
        let event = *self.stream.as_ref()?.first()?;
        let is_known = match event {
            Event::Document(_, change) => change <= self.majority().changes,
            Event::Renamed(_) => !self.is_behind,
        };
        is_known.then_some(event)
    }

    pub(super) fn may_execute(&self) -> bool {
        self.tail.len() < self.lag.max(1)
    }

    pub(super) fn has_tail(&self) -> bool {
        !self.tail.is_empty()
    }

    /// Executes a command. Returns the number of entries that the majority must get before it has this one.
    pub(super) fn run(&mut self, command: Command) -> Result<usize, Refused> {
        let mut stored = *self.now();
        let event = stored.run(command, &mut self.next_uuid, self.watched)?;
        Ok(self.append(stored, event))
    }

    pub(super) fn append(&mut self, stored: Stored, event: Option<Event>) -> usize {
        let event = event.filter(|_| self.stream.is_some());
        self.tail.push(Entry { stored, event });
        if self.lag == 0 {
            self.replicate();
        }
        self.tail.len()
    }

    /// The majority gets the oldest entry.
    pub(super) fn replicate(&mut self) {
        let entry = self.tail.remove(0);
        let changes = entry.stored.changes != self.committed.changes;
        if self.lag > 0 && changes && !self.is_behind {
            self.before = self.committed;
        }
        self.committed = entry.stored;
        if self.lag == 0 {
            self.before = self.committed;
        }
        if let (Some(event), Some(stream)) = (entry.event, &mut self.stream) {
            stream.push(event);
        }
    }

    /// Another member becomes primary. It has this many entries of the tail.
    pub(super) fn fail_over(&mut self, entries: usize) {
        self.tail.truncate(entries);
        self.is_behind = self.before != self.committed;
    }

    pub(super) fn tail_len(&self) -> usize {
        self.tail.len()
    }

    /// The new primary learns what the majority has.
    pub(super) fn learn(&mut self) {
        self.is_behind = false;
        self.before = self.committed;
    }

    /// What an undisturbed run sees.
    pub(super) fn settled(&self) -> Self {
        let mut settled = self.clone();
        while settled.has_tail() {
            settled.replicate();
        }
        settled.learn();
        settled.lag = 0;
        settled
    }
}
