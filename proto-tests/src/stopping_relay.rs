//! A relay between a program and a server that stops at a chosen command. The test then kills the program, or
//! does something else before the program goes on.

use std::io::{self, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::Document;

use crate::frame::{self, OP_MSG, header_field};
use crate::raw;

/// The longest time until a program sends the expected command. Less than a connection waits for a reply.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// When the relay stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The server does not get the command.
    Before,
    /// The server executes the command, and the program does not get the reply.
    After,
}

/// Names a command that is counted. `None`: it is not counted.
type Counted = fn(&Document) -> Option<String>;

/// A relay to a server. Its threads end with the process.
#[derive(Clone)]
pub struct StoppingRelay {
    address: SocketAddr,
    server: SocketAddr,
    counted: Counted,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    /// The counted commands since the last [`StoppingRelay::arm`].
    commands: Vec<String>,
    stop_at: Option<(usize, Moment)>,
    /// Nothing is passed on.
    has_stopped: bool,
    /// The number of calls of [`StoppingRelay::arm`]. What was stopped before the last one is never passed
    /// on.
    run: u64,
}

impl StoppingRelay {
    /// Starts the relay.
    pub fn to(server: SocketAddr, counted: Counted) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let relay = Self {
            address: listener.local_addr()?,
            server,
            counted,
            state: Arc::default(),
        };
        let shared = relay.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let relay = shared.clone();
                thread::spawn(move || relay.carry(&client));
            }
        });
        Ok(relay)
    }

    /// A connection string through this relay.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("mongodb://{}/?directConnection=true", self.address)
    }

    /// Counts commands from now on, and stops at the one with this number, counted from 1. `None`: does not
    /// stop.
    pub fn arm(&self, stop_at: Option<(usize, Moment)>) {
        let mut state = self.lock();
        *state = State {
            stop_at,
            run: state.run + 1,
            ..State::default()
        };
        self.state.1.notify_all();
    }

    /// Passes on what was stopped, and everything else from now on.
    pub fn go_on(&self) {
        let mut state = self.lock();
        (state.has_stopped, state.stop_at) = (false, None);
        self.state.1.notify_all();
    }

    /// Whether the relay has stopped.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.lock().has_stopped
    }

    /// Waits until the relay has stopped. Also returns if the program has ended before.
    ///
    /// # Errors
    /// If neither happens.
    pub fn wait_for_stop(&self, has_ended: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + STOP_LIMIT;
        while !self.has_stopped() && !has_ended() {
            ensure!(Instant::now() < deadline, "the command to stop at does not follow");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The counted commands since the last [`arm`](Self::arm).
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        self.lock().commands.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the relay is stopped.
    ///
    /// # Errors
    /// If another run has begun.
    fn wait(&self, state: MutexGuard<'_, State>) -> io::Result<()> {
        let run = state.run;
        let is_waiting = |state: &mut State| state.has_stopped && state.run == run;
        let state = self
            .state
            .1
            .wait_while(state, is_waiting)
            .unwrap_or_else(PoisonError::into_inner);
        if state.run == run {
            return Ok(());
        }
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    /// Carries one connection until either end closes.
    fn carry(&self, client: &TcpStream) {
        let Ok(server) = TcpStream::connect(self.server) else {
            return close(client);
        };
        let awaited = Mutex::new(None);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _ = self.replies(&server, client, &awaited);
                close(client);
                close(&server);
            });
            let _ = self.requests(client, &server, &awaited);
            close(client);
            close(&server);
        });
    }

    fn requests(&self, mut client: &TcpStream, mut server: &TcpStream, awaited: &Mutex<Option<i32>>) -> io::Result<()> {
        loop {
            let frame = frame::read(&mut client)?;
            let command = (header_field(&frame, 3) == OP_MSG).then(|| raw::document(&frame));
            let name = command
                .and_then(Result::ok)
                .and_then(|command| (self.counted)(&command));
            let mut state = self.lock();
            if let Some(name) = name.filter(|_| !state.has_stopped) {
                state.commands.push(name);
                let number = state.commands.len();
                match state.stop_at {
                    Some((stop, Moment::Before)) if stop == number => state.has_stopped = true,
                    Some((stop, Moment::After)) if stop == number => {
                        *awaited.lock().unwrap_or_else(PoisonError::into_inner) = Some(header_field(&frame, 1));
                    }
                    _ => {}
                }
            }
            self.wait(state)?;
            server.write_all(&frame)?;
        }
    }

    fn replies(&self, mut server: &TcpStream, mut client: &TcpStream, awaited: &Mutex<Option<i32>>) -> io::Result<()> {
        loop {
            let frame = frame::read(&mut server)?;
            let mut state = self.lock();
            let mut awaited = awaited.lock().unwrap_or_else(PoisonError::into_inner);
            if *awaited == Some(header_field(&frame, 2)) {
                *awaited = None;
                state.has_stopped = true;
            }
            drop(awaited);
            self.wait(state)?;
            client.write_all(&frame)?;
        }
    }
}

fn close(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Both);
}
