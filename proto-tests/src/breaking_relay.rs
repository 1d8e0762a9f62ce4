//! A relay to a server that breaks the connection at a chosen command: before the server receives it, or
//! after execution and before the reply.

use std::io::{self, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::Result;

use crate::frame::{self, header_field};

/// Commands that are counted, unless all are: those that write items.
const COUNTED: [&[u8]; 2] = [b"insert\0", b"update\0"];

/// An action that runs while a command waits.
type Meanwhile = Box<dyn FnOnce() + Send>;

/// When the connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The server does not get the command.
    Before,
    /// The server executes it, and its reply is lost.
    After,
}

/// A relay to a server. Its threads end with the process.
#[derive(Debug)]
pub struct BreakingRelay {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The next interruption, and the number of writing commands until then.
    armed: Option<(Event, usize)>,
    broke: bool,
    counts_all: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("broke", &self.broke)
            .finish_non_exhaustive()
    }
}

enum Event {
    Breaks(Moment),
    Waits(Meanwhile),
}

/// What the relay does with a command.
enum Fate {
    Passes,
    Waits(Meanwhile),
    IsLost,
    ReplyIsLost,
}

impl BreakingRelay {
    /// Starts the relay.
    pub fn to(server: SocketAddr) -> Result<Self> {
        Self::counting(server, false)
    }

    /// A relay that counts all commands, not only writes.
    pub fn counting_all(server: SocketAddr) -> Result<Self> {
        Self::counting(server, true)
    }

    fn counting(server: SocketAddr, counts_all: bool) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State {
            counts_all,
            ..State::default()
        }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                thread::spawn(move || carry(&client, server, &state));
            }
        });
        Ok(Self { address, state })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks the connection that has the writing command number `command` from now on, counted from 1.
    pub fn arm(&self, moment: Moment, command: usize) {
        self.set(Some((Event::Breaks(moment), command)));
    }

    /// Delays the writing command number `command` from now on, counted from 1, until `happens` has returned.
    pub fn meanwhile(&self, command: usize, happens: impl FnOnce() + Send + 'static) {
        self.set(Some((Event::Waits(Box::new(happens)), command)));
    }

    fn set(&self, armed: Option<(Event, usize)>) -> bool {
        let mut state = lock(&self.state);
        state.armed = armed;
        std::mem::take(&mut state.broke)
    }

    /// Ends the interruption, and returns whether a connection was broken.
    #[must_use]
    pub fn disarm(&self) -> bool {
        self.set(None)
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn fate(&mut self, frame: &[u8]) -> Fate {
        // Behind header, flags, kind, the document's length and the first element's type is its name.
        let name = frame.get(26..).unwrap_or_default();
        if !self.counts_all && !COUNTED.iter().any(|counted| name.starts_with(counted)) {
            return Fate::Passes;
        }
        let Some((event, left)) = self.armed.take() else {
            return Fate::Passes;
        };
        if left > 1 {
            self.armed = Some((event, left - 1));
            return Fate::Passes;
        }
        self.broke = matches!(event, Event::Breaks(_));
        match event {
            Event::Breaks(Moment::Before) => Fate::IsLost,
            Event::Breaks(Moment::After) => Fate::ReplyIsLost,
            Event::Waits(meanwhile) => Fate::Waits(meanwhile),
        }
    }
}

/// Carries one connection until either end closes, or it breaks.
fn carry(client: &TcpStream, server: SocketAddr, state: &Mutex<State>) {
    let Ok(server) = TcpStream::connect(server) else {
        return close(client);
    };
    let lost = Mutex::new(None);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = replies(&server, client, &lost);
            close(client);
            close(&server);
        });
        let _ = requests(client, &server, (state, &lost));
        close(client);
        close(&server);
    });
}

fn requests(
    mut client: &TcpStream,
    mut server: &TcpStream,
    (state, lost): (&Mutex<State>, &Mutex<Option<i32>>),
) -> io::Result<()> {
    loop {
        let frame = frame::read(&mut client)?;
        let fate = lock(state).fate(&frame);
        match fate {
            Fate::Passes => {}
            Fate::Waits(meanwhile) => meanwhile(),
            Fate::IsLost => return Ok(()),
            Fate::ReplyIsLost => *lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(header_field(&frame, 1)),
        }
        server.write_all(&frame)?;
    }
}

fn replies(mut server: &TcpStream, mut client: &TcpStream, lost: &Mutex<Option<i32>>) -> io::Result<()> {
    loop {
        let frame = frame::read(&mut server)?;
        if *lost.lock().unwrap_or_else(PoisonError::into_inner) == Some(header_field(&frame, 2)) {
            return Ok(());
        }
        client.write_all(&frame)?;
    }
}

fn close(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Both);
}
