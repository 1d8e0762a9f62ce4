//! Clients: two of proxies with `mode = "auto"`, and a program that writes plain documents directly.
//!
//! A proxy plans a command for the collection that it has listed last, and mongod executes it at any later
//! time. Reads are those of the primary, with read concern `local`.

use super::protocol::{Lists, Part, Protocol};
use super::server::{Cluster, Collection, DOCUMENTS, Documents, Event, Layout, Name, PRESENT, SOURCE};

pub(super) const STALE: &str = "a read misses a write that was acknowledged before";
pub(super) const WRONG_LAYOUT: &str = "a command was executed in another layout than it was planned for";

/// What a client does with a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    Insert(usize),
    Update(usize),
    Delete(usize),
    /// Reads all documents.
    Read,
}

impl Operation {
    /// The changed documents. `write`: a bit for this write. Nothing, if there is nothing to change.
    fn applied(self, mut documents: Documents, write: u8) -> Documents {
        match self {
            Self::Insert(document) if documents[document] == 0 => documents[document] = PRESENT | write,
            Self::Update(document) if documents[document] != 0 => documents[document] |= write,
            Self::Delete(document) => documents[document] = 0,
            Self::Insert(_) | Self::Update(_) | Self::Read => {}
        }
        documents
    }

    fn document(self) -> Option<usize> {
        match self {
            Self::Insert(document) | Self::Update(document) | Self::Delete(document) => Some(document),
            Self::Read => None,
        }
    }

    /// Whether a freeze refuses it. Documents of pages are deleted by updates.
    fn is_refused(self, layout: Layout) -> bool {
        match self {
            Self::Insert(_) | Self::Update(_) => true,
            Self::Delete(_) => layout != Layout::Plain,
            Self::Read => false,
        }
    }
}

/// The collection for which a command is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Planned {
    /// `None`: it is missing, so the first write creates it.
    uuid: Option<u8>,
    layout: Layout,
}

/// The position of a proxy in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Position {
    /// A command is on its way, planned for the collection that was listed last.
    Sent,
    /// It lists the collection again.
    Listing,
    /// The collection was missing; it lists the copy.
    ListingCopy { is_spanning: bool },
    /// The write was executed. Its client waits until the majority has so many entries.
    Waiting(usize),
}

/// A proxy with one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Proxy {
    /// The number of operations that have ended.
    pub(super) ended: u8,
    pub(super) position: Position,
    planned: Planned,
    /// Whether the last list found neither the collection nor a copy.
    was_missing: bool,
    /// The next UUID when a list first did not find the collection. 0: the last one has found it, or the
    /// copy.
    missing_since: u8,
}

/// The result of a step of a client.
pub(super) type Moved = Result<(), &'static str>;

/// An operation with its own bit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbered {
    pub(super) operation: Operation,
    pub(super) write: u8,
}

impl Proxy {
    /// A proxy that has listed the collection.
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            ended: 0,
            position: Position::Sent,
            planned: Planned {
                uuid: Some(SOURCE),
                layout,
            },
            was_missing: false,
            missing_since: 0,
        }
    }

    /// Begins the next operation.
    pub(super) fn end(&mut self) {
        self.ended += 1;
        self.position = Position::Sent;
    }

    /// The next step. `None`: there is none now.
    pub(super) fn step(&mut self, protocol: &Protocol, cluster: &mut Cluster, numbered: Numbered) -> Option<Moved> {
        match self.position {
            Position::Sent if numbered.operation != Operation::Read && !cluster.may_execute() => None,
            Position::Sent => Some(self.execute(protocol, cluster, numbered)),
            Position::Listing => self.list(protocol, cluster, numbered.operation),
            Position::ListingCopy { .. } => {
                self.list_copy(protocol, cluster);
                Some(Ok(()))
            }
            Position::Waiting(_) => None,
        }
    }

    fn execute(&mut self, protocol: &Protocol, cluster: &mut Cluster, numbered: Numbered) -> Moved {
        let main = cluster.now().main().copied();
        let is_named = self.planned.uuid.is_some() && protocol.has(Part::Uuid);
        if is_named && main.map(|main| main.uuid) != self.planned.uuid {
            self.position = Position::Listing;
            return Ok(());
        }
        if main.is_some_and(|main| main.is_frozen && numbered.operation.is_refused(main.layout)) {
            self.position = Position::Listing;
            return Ok(());
        }
        if main.is_some_and(|main| main.layout != self.planned.layout) {
            return Err(WRONG_LAYOUT);
        }
        if numbered.operation == Operation::Read {
            self.end();
            let now = cluster.now();
            return if now.documents(Name::Main) == now.expected {
                Ok(())
            } else {
                Err(STALE)
            };
        }
        match write(cluster, numbered, self.planned.layout) {
            0 => self.end(),
            entries => self.position = Position::Waiting(entries),
        }
        Ok(())
    }

    fn list(&mut self, protocol: &Protocol, cluster: &Cluster, operation: Operation) -> Option<Moved> {
        match cluster.now().main() {
            Some(main) if main.is_frozen && operation.is_refused(main.layout) => {
                if self.missing_since == 0 && !self.was_missing {
                    return None;
                }
                (self.missing_since, self.was_missing) = (0, false);
            }
            Some(main) => self.plan(Planned {
                uuid: Some(main.uuid),
                layout: main.layout,
            }),
            None if protocol.has(Part::Hold) => {
                if self.missing_since == 0 && protocol.lists == Lists::OneByOne {
                    self.missing_since = cluster.next_uuid;
                }
                match protocol.lists {
                    Lists::AtOnce => self.list_copy(protocol, cluster),
                    Lists::OneByOne => self.position = Position::ListingCopy { is_spanning: false },
                }
            }
            None => self.plan_missing(),
        }
        Some(Ok(()))
    }

    fn list_copy(&mut self, protocol: &Protocol, cluster: &Cluster) {
        let is_converting = cluster.now().at(Name::Copy).is_some();
        if is_converting {
            self.missing_since = 0;
        }
        if !is_converting && (self.was_missing || !protocol.has(Part::SecondList)) {
            self.plan_missing();
        } else {
            self.was_missing = !is_converting;
            self.position = Position::Listing;
        }
    }

    /// A name has changed.
    pub(super) fn span(&mut self) {
        if let Position::ListingCopy { is_spanning } = &mut self.position {
            *is_spanning = true;
        }
    }

    /// The primary has no longer answered a list.
    pub(super) fn fail_over(&mut self) {
        if matches!(self.position, Position::ListingCopy { .. }) {
            self.position = Position::Listing;
        }
    }

    /// What takes no time.
    pub(super) fn settled(self) -> Self {
        Self {
            missing_since: 0,
            position: Position::Sent,
            ..self
        }
    }

    /// Whether this copy was made after the proxy has begun to list.
    pub(super) fn lists_longer_than(&self, copy: u8) -> bool {
        self.missing_since != 0 && copy >= self.missing_since
    }

    fn plan_missing(&mut self) {
        // A missing collection is one of pages.
        self.plan(Planned {
            uuid: None,
            layout: Layout::Pages,
        });
    }

    fn plan(&mut self, planned: Planned) {
        self.planned = planned;
        self.was_missing = false;
        self.missing_since = 0;
        self.position = Position::Sent;
    }
}

/// Executes a write. Returns the number of entries that the majority must get before it has this one. A
/// missing collection is created by an insert.
fn write(cluster: &mut Cluster, numbered: Numbered, layout: Layout) -> usize {
    let Numbered { operation, write } = numbered;
    let mut stored = *cluster.now();
    let created = Collection {
        uuid: cluster.next_uuid,
        layout,
        documents: [0; DOCUMENTS],
        is_frozen: false,
        is_place: false,
    };
    let is_insert = matches!(operation, Operation::Insert(_));
    let main = stored.main_mut();
    if main.is_none() && is_insert {
        cluster.next_uuid += 1;
        *main = Some(created);
    }
    let mut is_source = false;
    if let Some(main) = main {
        is_source = main.uuid == cluster.watched;
        main.documents = operation.applied(main.documents, write);
    }
    stored.expected = operation.applied(stored.expected, write);
    if stored == *cluster.now() {
        return 0;
    }
    stored.changes += 1;
    let document = operation.document().filter(|_| is_source);
    let event = document.map(|document| Event::Document(document, stored.changes));
    cluster.append(stored, event)
}

/// The write of a program that uses no proxy. After the freeze has refused it, or the collection has another
/// layout, the program ends: the conversion's documentation demands that. Pages have a validator, too.
pub(super) fn write_directly(protocol: &Protocol, cluster: &mut Cluster, numbered: Numbered) {
    match cluster.now().at(Name::Main).copied() {
        Some(main) if main.is_frozen && numbered.operation.is_refused(main.layout) => {}
        Some(main) if main.layout != protocol.from => {}
        None if protocol.has(Part::EndOfDirectWriter) => {}
        _ => {
            write(cluster, numbered, Layout::Plain);
        }
    }
}
