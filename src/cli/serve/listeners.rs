//! Creates listeners for the configured addresses.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use mongodb::options::ServerAddress;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::config::{Config, Listeners, MemberConfig, PresentAs as Configured};
use crate::server::listener::{Listener, ListenerPresentation};
use crate::server::topology::Dialing;
use crate::session::handshake::AddressMap;
use crate::session::upstream::{Upstream, UpstreamKind, Upstreams};

/// Bound sockets, and their configuration.
pub(super) struct Sockets<'a> {
    bound: Vec<TcpListener>,
    config: &'a Listeners,
}

/// Binds all addresses for clients.
///
/// # Errors
/// The first address that cannot be bound.
pub(super) async fn bind(config: &Config) -> anyhow::Result<Sockets<'_>> {
    let config = &config.listen.listeners;
    let mut bound = Vec::new();
    match config {
        Listeners::One { address, .. } => bound.push(bind_one(*address, "listen.address").await?),
        Listeners::Members(members) => {
            for member in members {
                bound.push(bind_one(member.address, "listen.member.address").await?);
            }
        }
    }
    Ok(Sockets { bound, config })
}

/// Binds an address. `option`: the option that names it, for the error.
///
/// # Errors
/// If the address is in use, or does not belong to this machine.
pub(super) async fn bind_one(address: SocketAddr, option: &str) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.with_context(|| format!("cannot listen on {address} (`{option}`)"))
}

impl Sockets<'_> {
    /// The addresses as text for the log.
    pub(super) fn names(&self) -> String {
        let names = self.bound.iter().filter_map(|socket| socket.local_addr().ok());
        names.map(|address| address.to_string()).collect::<Vec<_>>().join(",")
    }

    /// Makes listeners of the sockets. `upstreams`: the server that the topology monitor selects.
    ///
    /// # Errors
    /// If a member's host name is invalid for certificates.
    pub(super) fn listeners(self, dialing: &Dialing, upstreams: &Upstreams) -> anyhow::Result<Vec<Listener>> {
        let sockets = self.bound.into_iter();
        match self.config {
            Listeners::One {
                present_as, advertise, ..
            } => {
                let present_as = match present_as {
                    Configured::Mongos => ListenerPresentation::Mongos,
                    Configured::ReplicaSet => ListenerPresentation::ReplicaSet(advertise.as_deref().map(Arc::from)),
                };
                Ok(sockets
                    .map(|socket| Listener {
                        socket,
                        present_as: present_as.clone(),
                        upstreams: upstreams.clone(),
                        admission: None,
                        secret: None,
                    })
                    .collect())
            }
            Listeners::Members(members) => {
                let sockets: Vec<_> = sockets.collect();
                let map = Arc::new(map(members, &sockets)?);
                let listener = |(socket, member): (TcpListener, &MemberConfig)| {
                    Ok(Listener {
                        socket,
                        present_as: ListenerPresentation::Member(Arc::clone(&map)),
                        upstreams: of_member(member, dialing)?,
                        admission: None,
                        secret: None,
                    })
                };
                sockets.into_iter().zip(members).map(listener).collect()
            }
        }
    }
}

/// The listeners' addresses of all members. A port that the system chose is known after binding.
fn map(members: &[MemberConfig], sockets: &[TcpListener]) -> anyhow::Result<AddressMap> {
    let listener = |(member, socket): (&MemberConfig, &TcpListener)| {
        let advertised = match &member.advertise {
            Some(advertised) => advertised.clone(),
            None => socket.local_addr()?.to_string(),
        };
        Ok((member.upstream.clone(), advertised))
    };
    let pairs: anyhow::Result<Vec<_>> = members.iter().zip(sockets).map(listener).collect();
    Ok(AddressMap::new(pairs?))
}

/// A member's listener always connects to that member, whether it is the primary or not.
fn of_member(member: &MemberConfig, dialing: &Dialing) -> anyhow::Result<Upstreams> {
    let address = ServerAddress::parse(&member.upstream)?;
    let server = dialing
        .address(&address, UpstreamKind::Member)
        .with_context(|| format!("{} cannot be reached (`listen.member.upstream`)", member.upstream))?;
    let upstream = Upstream::sole(server, dialing.stop.child_token());
    Ok(Upstreams::new(watch::channel(Some(Arc::new(upstream))).1))
}
