//! The servers for one kind of upstream and one kind of security: mongod, and a proxy for each presentation.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use bson::{Document, doc};
use proto_tests::{Certificates, Level, Mongod, Proxy, ProxyOptions, client, mongod};

use super::cell::{Face, Security, Upstream, Variant};

const MEMBERS: usize = 3;

pub(super) struct Servers {
    /// Dropped before what they stand before.
    proxies: Vec<(Face, Proxy)>,
    mongod: Mongod,
    upstream: Upstream,
    certificates: Option<Certificates>,
}

impl Servers {
    pub(super) fn start(upstream: Upstream, security: Security, faces: &[Face]) -> Result<Self> {
        // With test commands: the script makes the server close connections.
        let mut options = mongod::Options::default().parameter("enableTestCommands=1");
        let certificates = match security {
            Security::Tls => Some(Certificates::new()?),
            Security::None | Security::Login => None,
        };
        if let Some(certificates) = &certificates {
            options = options.tls(certificates);
        }
        if security == Security::Login {
            options = options.auth();
        }
        let mongod = match upstream {
            Upstream::Standalone => options.standalone()?,
            Upstream::Set => options.replica_set(MEMBERS)?,
        };
        let proxies = faces
            .iter()
            .map(|&face| Ok((face, proxy(&mongod, face, certificates.as_ref())?)))
            .collect::<Result<_>>()?;
        Ok(Self {
            proxies,
            mongod,
            upstream,
            certificates,
        })
    }

    /// The connection string for mongod itself.
    pub(super) fn direct(&self, variant: Variant) -> String {
        let set = (self.upstream == Upstream::Set).then_some("rs0");
        self.uri(&self.mongod.addresses(), set, variant)
    }

    /// The connection string for the proxy.
    pub(super) fn through(&self, face: Face, variant: Variant) -> Result<String> {
        let (_, proxy) = self
            .proxies
            .iter()
            .find(|(of, _)| *of == face)
            .context("its proxy runs")?;
        Ok(match face {
            Face::Standalone | Face::Mongos => self.uri(&[proxy.address()], None, variant),
            Face::ReplicaSet => self.uri(&[proxy.address()], Some("rs0"), variant),
            Face::Members => self.uri(proxy.member_addresses(), Some("rs0"), variant),
        })
    }

    fn uri(&self, hosts: &[SocketAddr], set: Option<&str>, variant: Variant) -> String {
        let of_mongod = self.mongod.uri();
        let login = of_mongod
            .strip_prefix("mongodb://")
            .and_then(|rest| rest.split_once('@'))
            .map(|(login, _)| format!("{login}@"));
        let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
        // Every driver's default, and a place to begin.
        let mut options = vec!["retryWrites=true".to_owned()];
        let authority = self.certificates.as_ref().map(Certificates::ca);
        options.extend(authority.map(|file| format!("tls=true&tlsCAFile={}", file.display())));
        options.extend(login.is_some().then(|| "authSource=admin".to_owned()));
        options.extend(set.map(|set| format!("replicaSet={set}")));
        options.extend(variant.option().map(str::to_owned));
        let login = login.unwrap_or_default();
        format!("mongodb://{login}{}/?{}", hosts.join(","), options.join("&"))
    }

    /// How many bytes all members have received that were compressed in this way.
    pub(super) fn received(&self, compressor: &str) -> Result<i64> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut received = 0;
            for member in 0..self.mongod.addresses().len() {
                let client = client(&self.mongod.member_uri(member)).await?;
                let status = client.database("admin").run_command(doc! { "serverStatus": 1 }).await?;
                received += bytes_in(&status, compressor).context("mongod counts compressed bytes")?;
            }
            Ok(received)
        })
    }
}

fn bytes_in(status: &Document, compressor: &str) -> Option<i64> {
    let compression = status.get_document("network").ok()?.get_document("compression").ok()?;
    let decompressor = compression
        .get_document(compressor)
        .ok()?
        .get_document("decompressor")
        .ok()?;
    decompressor.get("bytesIn")?.as_i64()
}

fn proxy(mongod: &Mongod, face: Face, certificates: Option<&Certificates>) -> Result<Proxy> {
    let mut options = ProxyOptions::new(&mongod.uri());
    options = match face {
        Face::Standalone => options,
        Face::Mongos => options.listen("present_as = \"mongos\""),
        Face::ReplicaSet => options.listen("present_as = \"replica-set\""),
        Face::Members => options.members(&mongod.addresses()),
    };
    if let Some(certificates) = certificates {
        options = options.tls(certificates);
    }
    let proxy = Proxy::start(&options)?;
    // The fail points' work.
    proxy.expect_log(Level::Warn, "the upstream is not available");
    Ok(proxy)
}
