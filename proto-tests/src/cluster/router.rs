//! Listens for clients. Each client has a thread.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use anyhow::Result;

use super::dispatch;
use super::message::Request;
use super::shard_connections::ShardConnections;
use super::state::State;
use crate::frame;

/// Starts a router, and gives its address. Its threads end with the process.
pub(super) fn start(state: &Arc<State>) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let state = Arc::clone(state);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let state = Arc::clone(&state);
            thread::spawn(move || {
                // It ends when the client closes the connection, or sends what cannot be read.
                let _ = serve(&client, &state);
            });
        }
    });
    Ok(address)
}

fn serve(mut client: &TcpStream, state: &Arc<State>) -> Result<()> {
    client.set_nodelay(true)?;
    let mut connections = ShardConnections::new(state);
    loop {
        let frame = frame::read(&mut client)?;
        let request = Request::parse(&frame)?;
        let reply = dispatch::answer(&mut connections, &request.command);
        if !request.is_unacknowledged {
            client.write_all(&request.reply(&reply)?)?;
        }
    }
}
