//! The proxy of a demo: `mongoshape serve` as a child process.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use mongodb::Client;
use mongodb::options::{ClientOptions, ServerAddress};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

/// The longest start of a proxy.
const START_LIMIT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running proxy. It is killed when it is dropped.
pub(super) struct DemoProxy {
    pub(super) address: SocketAddr,
    process: Child,
}

impl DemoProxy {
    /// Starts it on free ports, and waits until it accepts clients.
    pub(super) async fn start(uri: &str, shapes: &str) -> anyhow::Result<Self> {
        let (address, admin) = (free_address()?, free_address()?);
        let configuration = format!("[listen]\naddress = \"{address}\"\n\n[admin]\naddress = \"{admin}\"\n\n{shapes}");
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--config", "/dev/stdin"]);
        // The user's own `MONGOSHAPE_` variables would override this configuration.
        command.env_clear().env("MONGOSHAPE_LOG_FILTER", "error");
        // Other users of this machine cannot read it there. The connection string may have a password.
        command.env("MONGOSHAPE_UPSTREAM_URI", uri);
        command.stdin(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let mut stdin = process.stdin.take().context("the proxy has no standard input")?;
        stdin.write_all(configuration.as_bytes()).await?;
        drop(stdin);
        let mut proxy = Self { address, process };
        proxy.wait_until_ready().await?;
        Ok(proxy)
    }

    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while tokio::net::TcpStream::connect(self.address).await.is_err() {
            if let Some(status) = self.process.try_wait()? {
                bail!("the proxy ended with {status}");
            }
            ensure!(
                Instant::now() < deadline,
                "the proxy did not start within {START_LIMIT:?}"
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// A client with the credentials of the server's connection string.
    pub(super) async fn client(&self, uri: &str) -> anyhow::Result<Client> {
        let address = ServerAddress::Tcp {
            host: self.address.ip().to_string(),
            port: Some(self.address.port()),
        };
        let mut options = ClientOptions::builder().hosts(vec![address]).build();
        options.direct_connection = Some(true);
        options.credential = ClientOptions::parse(uri).await?.credential;
        Ok(Client::with_options(options)?)
    }

    /// Ends it.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.process.kill().await.context("the proxy could not be ended")
    }
}

/// An address that nothing listens on.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
