//! Operations on a replica set: initiate, elect, step down, restart a member.

use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use bson::doc;

use super::member::Member;
use super::{Mongod, Role, SET_NAME, START_LIMIT, options};
use crate::guarded::POLL_INTERVAL;

impl Mongod {
    /// The member that reports itself as primary. It waits for one, as in the middle of an election there is
    /// none.
    pub fn primary(&self) -> Result<usize> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let primary = self
                .members
                .iter()
                .position(|member| member.is_writable().unwrap_or(false));
            match primary {
                Some(primary) => return Ok(primary),
                None if Instant::now() > deadline => bail!("no primary after {START_LIMIT:?}"),
                None => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Makes the primary step down at once, caught-up secondaries or not, for `secs` seconds, and gives the
    /// member that it was. The set elects the next primary: [`Mongod::primary`] waits for it. A
    /// primary that has just lost its role is no failure. Not for servers that demand logins.
    pub fn step_down(&self, secs: u32) -> Result<usize> {
        let stepping = self.primary()?;
        let mut connection = self.members[stepping].connect()?;
        let command = doc! { "replSetStepDown": secs, "force": true, "$db": "admin" };
        // It may close all connections as it goes.
        let Ok(reply) = connection.command(&command) else {
            return Ok(stepping);
        };
        let is_done = reply.get_f64("ok").is_ok_and(|ok| ok > 0.0);
        let lost = [
            "NotWritablePrimary",
            "PrimarySteppedDown",
            "InterruptedDueToReplStateChange",
        ];
        ensure!(
            is_done || reply.get_str("codeName").is_ok_and(|name| lost.contains(&name)),
            "replSetStepDown was refused: {reply}"
        );
        Ok(stepping)
    }

    /// Starts a member again after [`Mongod::kill`], on its port and its files, and waits until it answers; a
    /// set's member until it is primary or secondary.
    pub fn restart(&mut self, member: usize) -> Result<()> {
        self.members[member].restart(&self.options, self.role)?;
        match self.role {
            Role::Standalone => Ok(()),
            Role::Member => self.members[member].wait_for_role(),
        }
    }

    pub(super) fn initiate(&self) -> Result<()> {
        let members: Vec<_> = (0i32..)
            .zip(&self.members)
            .map(|(id, member)| doc! { "_id": id, "host": member.address.to_string() })
            .collect();
        // Members on one machine need no slow heartbeats, and an election after a kill is then a matter of
        // seconds.
        let settings = doc! { "electionTimeoutMillis": 3000, "heartbeatIntervalMillis": 500 };
        let config = doc! { "_id": SET_NAME, "members": members, "settings": settings };
        let mut connection = self.members[0].connect()?;
        connection.stream().set_read_timeout(Some(START_LIMIT))?;
        connection
            .command_ok(&doc! { "replSetInitiate": config, "$db": "admin" })
            .context("replSetInitiate")?;
        self.primary()?;
        // So that a test does not begin in the middle of a first copy.
        self.members.iter().try_for_each(Member::wait_for_role)
    }

    /// The first user. A server without users allows a local connection to create it.
    pub(super) fn create_admin(&self) -> Result<()> {
        if !self.options.auth {
            return Ok(());
        }
        let (user, password) = options::ADMIN;
        let create = doc! {
            "createUser": user, "pwd": password, "roles": ["root"], "mechanisms": ["SCRAM-SHA-1", "SCRAM-SHA-256"],
            "writeConcern": { "w": "majority", "j": true }, "$db": "admin",
        };
        let mut connection = self.members[self.primary()?].connect()?;
        connection.stream().set_read_timeout(Some(START_LIMIT))?;
        connection.command_ok(&create).context("createUser")?;
        Ok(())
    }
}

impl Member {
    /// Waits until it is primary or secondary.
    fn wait_for_role(&self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let hello = self.hello().unwrap_or_default();
            if ["isWritablePrimary", "secondary"]
                .iter()
                .any(|state| hello.get_bool(state).unwrap_or(false))
            {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "a member is still neither primary nor secondary: {hello}"
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
