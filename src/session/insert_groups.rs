//! Groups concurrent inserts of one document each. A group is one command, so its clients share mongod's cost of a
//! command (`docs/decisions/0049-concurrent-inserts-are-grouped.md`).
//!
//! At most [`MAX_IN_FLIGHT`] commands of a collection are executed at a time. Further inserts wait. When a command
//! ends, the first waiting session becomes the leader of the next group: it executes its own insert and those that wait
//! with equal [options](GroupOptions). An insert is executed at once if fewer commands are in flight.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bson::raw::RawDocumentBuf;
use tokio::sync::oneshot;

use super::error::RunError;
use crate::command::namespace::Namespace;

/// The most commands that are executed on a collection at a time. A lower limit makes groups larger, but mongod then
/// uses fewer processors.
const MAX_IN_FLIGHT: usize = 8;

/// The most inserts in a group.
const MAX_INSERTS: usize = 1000;

/// The most bytes of documents in a group.
const MAX_BYTES: usize = 1 << 20;

/// The inserts of all collections that are executed, or wait for a group.
#[derive(Debug, Default)]
pub(super) struct InsertGroups {
    collections: Mutex<HashMap<GroupedCollection, Inserts>>,
}

/// A collection of one upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupedCollection {
    /// The server's [term](super::upstream::Upstream::term).
    term: u64,
    namespace: String,
}

/// The properties in which the inserts of a group are equal.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GroupOptions {
    /// The authenticated users: mongod checks the rights of the leader's.
    pub(super) users: Vec<u8>,
    /// The options of the command, as the client sent them.
    pub(super) options: RawDocumentBuf,
}

/// An insert of one document.
#[derive(Debug)]
pub(super) struct GroupableInsert {
    pub(super) options: GroupOptions,
    pub(super) document: RawDocumentBuf,
}

/// The inserts of one collection.
#[derive(Debug, Default)]
struct Inserts {
    /// The commands that are executed.
    in_flight: usize,
    waiting: VecDeque<WaitingInsert>,
}

#[derive(Debug)]
struct WaitingInsert {
    insert: GroupableInsert,
    event: oneshot::Sender<GroupEvent>,
}

/// The end of an insert's wait.
#[derive(Debug)]
pub(super) enum GroupEvent {
    /// Another session has executed the insert. The reply, as for a command of its own.
    Executed(Result<RawDocumentBuf, RunError>),
    /// The waiting session leads this group.
    Leads(InsertGroup),
}

/// A group without its leader's insert.
#[derive(Debug)]
pub(super) struct InsertGroup {
    pub(super) members: Vec<GroupMember>,
    pub(super) permit: InsertPermit,
}

/// Another session's insert.
#[derive(Debug)]
pub(super) struct GroupMember {
    pub(super) document: RawDocumentBuf,
    event: oneshot::Sender<GroupEvent>,
}

/// A group that begins.
struct NextGroup {
    leader: oneshot::Sender<GroupEvent>,
    group: InsertGroup,
}

/// The right to execute a command. When it is dropped, the next group begins.
#[derive(Debug)]
pub(super) struct InsertPermit {
    groups: Arc<InsertGroups>,
    collection: GroupedCollection,
}

/// The admission of an insert.
#[derive(Debug)]
pub(super) enum Admission {
    /// It is executed at once, alone.
    Now(InsertPermit),
    /// It waits for a group.
    Later(oneshot::Receiver<GroupEvent>),
}

impl GroupedCollection {
    pub(super) fn new(term: u64, namespace: Namespace<'_>) -> Self {
        Self {
            term,
            namespace: namespace.to_string(),
        }
    }
}

impl InsertGroups {
    /// Admits an insert if it need not wait.
    pub(super) fn admit_at_once(self: &Arc<Self>, collection: &GroupedCollection) -> Option<InsertPermit> {
        let mut collections = self.lock();
        // Only collections with commands in flight have an entry.
        let inserts = collections.entry(collection.clone()).or_default();
        self.begin(inserts, collection)
    }

    /// Admits an insert, which may have to wait.
    pub(super) fn admit(self: &Arc<Self>, collection: &GroupedCollection, insert: GroupableInsert) -> Admission {
        let mut collections = self.lock();
        let inserts = collections.entry(collection.clone()).or_default();
        if let Some(permit) = self.begin(inserts, collection) {
            return Admission::Now(permit);
        }
        let (event, wait) = oneshot::channel();
        inserts.waiting.push_back(WaitingInsert { insert, event });
        Admission::Later(wait)
    }

    fn begin(self: &Arc<Self>, inserts: &mut Inserts, collection: &GroupedCollection) -> Option<InsertPermit> {
        if inserts.in_flight >= MAX_IN_FLIGHT {
            return None;
        }
        inserts.in_flight = inserts.in_flight.saturating_add(1);
        Some(self.permit(collection))
    }

    fn permit(self: &Arc<Self>, collection: &GroupedCollection) -> InsertPermit {
        InsertPermit {
            groups: Arc::clone(self),
            collection: collection.clone(),
        }
    }

    /// The next group, which begins when a command ends. `None`: none waits, and one command less is in flight.
    fn next(self: &Arc<Self>, collection: &GroupedCollection) -> Option<NextGroup> {
        let mut collections = self.lock();
        let inserts = collections.get_mut(collection)?;
        let Some(leader) = inserts.waiting.pop_front() else {
            inserts.in_flight = inserts.in_flight.saturating_sub(1);
            if inserts.in_flight == 0 {
                collections.remove(collection);
            }
            return None;
        };
        let members = inserts.take_members(&leader.insert);
        let permit = self.permit(collection);
        Some(NextGroup {
            leader: leader.event,
            group: InsertGroup { members, permit },
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<GroupedCollection, Inserts>> {
        self.collections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inserts {
    /// Takes the waiting inserts that can be executed with this one.
    fn take_members(&mut self, leader: &GroupableInsert) -> Vec<GroupMember> {
        let mut members = Vec::new();
        let mut bytes = leader.document.as_bytes().len();
        for waiting in std::mem::take(&mut self.waiting) {
            let sum = bytes.saturating_add(waiting.insert.document.as_bytes().len());
            let has_room = members.len().saturating_add(1) < MAX_INSERTS && sum <= MAX_BYTES;
            if !has_room || waiting.insert.options != leader.options {
                self.waiting.push_back(waiting);
                continue;
            }
            bytes = sum;
            members.push(GroupMember {
                document: waiting.insert.document,
                event: waiting.event,
            });
        }
        members
    }
}

impl GroupMember {
    /// Ends the wait of the member's session.
    pub(super) fn reply(self, reply: Result<RawDocumentBuf, RunError>) {
        // The session may have ended.
        drop(self.event.send(GroupEvent::Executed(reply)));
    }
}

impl Drop for InsertPermit {
    fn drop(&mut self) {
        if let Some(NextGroup { leader, group }) = self.groups.next(&self.collection) {
            // If the leader's session has ended, the group is dropped here with its permit: the next one begins.
            drop(leader.send(GroupEvent::Leads(group)));
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    const NAMESPACE: Namespace<'_> = Namespace {
        database: "d",
        collection: "c",
    };

    /// A collection with [`MAX_IN_FLIGHT`] commands.
    struct Busy {
        groups: Arc<InsertGroups>,
        collection: GroupedCollection,
        permits: Vec<InsertPermit>,
    }

    impl Busy {
        fn new() -> Self {
            let (groups, collection) = (Arc::<InsertGroups>::default(), GroupedCollection::new(1, NAMESPACE));
            let permits = (0..MAX_IN_FLIGHT).map(|_| groups.admit_at_once(&collection).unwrap());
            let permits = permits.collect();
            Self {
                groups,
                collection,
                permits,
            }
        }

        fn wait(&self, user: u8, document: RawDocumentBuf) -> oneshot::Receiver<GroupEvent> {
            assert!(self.groups.admit_at_once(&self.collection).is_none());
            let options = GroupOptions {
                users: vec![user],
                options: RawDocumentBuf::new(),
            };
            match self
                .groups
                .admit(&self.collection, GroupableInsert { options, document })
            {
                Admission::Now(_) => panic!("more in flight than possible"),
                Admission::Later(event) => event,
            }
        }

        fn wait_as(&self, user: u8) -> oneshot::Receiver<GroupEvent> {
            self.wait(user, rawdoc! { "_id": 1 })
        }

        /// The group that begins when a command ends, if this session leads it.
        fn group_of(&mut self, session: &mut oneshot::Receiver<GroupEvent>) -> InsertGroup {
            self.permits.pop();
            let Ok(GroupEvent::Leads(group)) = session.try_recv() else {
                panic!("the session leads no group")
            };
            group
        }

        /// Ends all commands. No collection has an entry then.
        fn end(self, group: InsertGroup) {
            drop((group, self.permits));
            assert!(self.groups.lock().is_empty());
        }
    }

    #[test]
    fn inserts_that_wait_with_equal_options_are_one_group() {
        let mut busy = Busy::new();
        let mut sessions = [1, 2, 1, 2, 1].map(|user| busy.wait_as(user));
        let group = busy.group_of(&mut sessions[0]);
        assert_eq!(group.members.len(), 2);
        for member in group.members {
            member.reply(Ok(rawdoc! { "n": 1 }));
        }
        assert!(matches!(sessions[2].try_recv(), Ok(GroupEvent::Executed(Ok(_)))));
        assert!(matches!(sessions[1].try_recv(), Err(TryRecvError::Empty)));
        // The next group begins when the first one ends.
        drop(group.permit);
        let Ok(GroupEvent::Leads(group)) = sessions[1].try_recv() else {
            panic!("the second user's group has not begun")
        };
        assert_eq!(group.members.len(), 1);
        busy.end(group);
    }

    #[test]
    fn a_group_has_bounds() {
        let mut busy = Busy::new();
        let large = rawdoc! { "_id": "x".repeat(MAX_BYTES / 3) };
        let mut sessions: Vec<_> = (0..4).map(|_| busy.wait(1, large.clone())).collect();
        let group = busy.group_of(&mut sessions[0]);
        assert_eq!(group.members.len(), 1);
        let mut busy = Busy::new();
        let mut sessions: Vec<_> = (0..=MAX_INSERTS).map(|_| busy.wait_as(1)).collect();
        let group = busy.group_of(&mut sessions[0]);
        assert_eq!(group.members.len(), MAX_INSERTS - 1);
    }

    #[test]
    fn a_session_that_has_ended_leads_no_group() {
        let mut busy = Busy::new();
        drop(busy.wait_as(1));
        let mut second = busy.wait_as(2);
        let group = busy.group_of(&mut second);
        busy.end(group);
    }
}
