//! Handshakes between the results of `acceptor` and `connector`, in memory.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, ProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;

/// The results of a handshake on both sides.
#[derive(Debug)]
struct Outcome {
    client: Result<(ProtocolVersion, HandshakeKind), String>,
    server: Result<(), String>,
}

impl Outcome {
    fn assert_fine(&self) {
        assert!(self.client.is_ok() && self.server.is_ok(), "{self:?}");
    }

    fn assert_client_refuses(&self, words: &str) {
        let said = self.client.as_ref().unwrap_err();
        assert!(said.contains(words), "{self:?}");
        assert!(self.server.is_err(), "{self:?}");
    }

    fn assert_server_refuses(&self, words: &str) {
        let said = self.server.as_ref().unwrap_err();
        assert!(said.contains(words), "{self:?}");
        assert!(self.client.is_err(), "{self:?}");
    }
}

/// A handshake, and one value in each direction. In TLS 1.3, a client learns of its refusal, and
/// gets its tickets, only with its first read.
async fn handshake(server: &Arc<ServerConfig>, client: &Arc<ClientConfig>, host: &str) -> Outcome {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let accepting = async {
        let mut stream = TlsAcceptor::from(Arc::clone(server)).accept(far).await?;
        let word = stream.read_u32().await?;
        stream.write_u32(word + 1).await?;
        stream.shutdown().await
    };
    let connecting = async {
        let name = server_name(host).unwrap();
        let mut stream = TlsConnector::from(Arc::clone(client)).connect(name, near).await?;
        stream.write_u32(41).await?;
        assert_eq!(stream.read_u32().await?, 42);
        let connection = stream.get_ref().1;
        assert_eq!(connection.alpn_protocol(), None);
        Ok((
            connection.protocol_version().unwrap(),
            connection.handshake_kind().unwrap(),
        ))
    };
    let (server, client) = tokio::join!(accepting, connecting);
    Outcome {
        client: client.map_err(|error: std::io::Error| error.to_string()),
        server: server.map_err(|error| error.to_string()),
    }
}

const HOST: &str = "db.example.com";

/// A server whose certificate `acceptor` would refuse, like that of another program.
fn careless_server(identity: &Identity) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_slice_iter(identity.chain.as_bytes()).map(Result::unwrap);
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth();
    Arc::new(builder.with_single_cert(chain.collect(), key).unwrap())
}

#[tokio::test]
async fn a_known_authority_is_trusted_for_the_names_of_the_certificate() {
    let (folder, authority) = (Folder::new(), Authority::new("an authority"));
    folder.write("ca.pem", &[&authority.pem]);
    let server = acceptor(&folder.listener("proxy.pem", &authority.issue(&server()), None)).unwrap();
    let client = folder.connector("tlsCAFile={}/ca.pem");
    for host in [HOST, "127.0.0.1", "[::1]"] {
        let outcome = handshake(&server, &client, host).await;
        outcome.assert_fine();
        let (version, _) = outcome.client.unwrap();
        assert_eq!(version, ProtocolVersion::TLSv1_3);
    }
    for host in ["other.example.com", "127.0.0.2"] {
        let outcome = handshake(&server, &client, host).await;
        outcome.assert_client_refuses("not valid for name");
    }
}

#[tokio::test]
async fn tls_1_2_is_spoken_by_both() {
    let (folder, authority) = (Folder::new(), Authority::new("an authority"));
    folder.write("ca.pem", &[&authority.pem]);
    let files = folder.listener("proxy.pem", &authority.issue(&server()), None);
    let (server, client) = (acceptor(&files).unwrap(), folder.connector("tlsCAFile={}/ca.pem"));

    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap())
        .unwrap();
    let old = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let old = old.with_protocol_versions(&[&rustls::version::TLS12]).unwrap();
    let old = Arc::new(old.with_root_certificates(roots).with_no_client_auth());
    let outcome = handshake(&server, &old, HOST).await;
    assert_eq!(outcome.client.unwrap().0, ProtocolVersion::TLSv1_2);

    let old = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let old = old.with_protocol_versions(&[&rustls::version::TLS12]).unwrap();
    let old = old
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(&server.cert_resolver));
    let outcome = handshake(&Arc::new(old), &client, HOST).await;
    assert_eq!(outcome.client.unwrap().0, ProtocolVersion::TLSv1_2);
}

#[tokio::test]
async fn a_chain_is_sent_whole() {
    let (folder, authority) = (Folder::new(), Authority::new("an authority"));
    folder.write("ca.pem", &[&authority.pem]);
    let client = folder.connector("tlsCAFile={}/ca.pem");
    let intermediate = authority.intermediate();
    let mut identity = intermediate.issue(&server());
    let server = acceptor(&folder.listener("proxy.pem", &identity, None)).unwrap();
    let outcome = handshake(&server, &client, HOST).await;
    outcome.assert_client_refuses("UnknownIssuer");

    identity.chain.push_str(&intermediate.pem);
    let server = acceptor(&folder.listener("proxy.pem", &identity, None)).unwrap();
    handshake(&server, &client, HOST).await.assert_fine();
}

#[tokio::test]
async fn invalid_server_certificate_is_refused_unless_checks_are_disabled() {
    let (folder, authority) = (Folder::new(), Authority::new("an authority"));
    folder.write("ca.pem", &[&authority.pem]);
    folder.write("other-ca.pem", &[&Authority::new("another authority").pem]);
    let right = careless_server(&authority.issue(&server()));
    let expired = careless_server(&authority.issue(&expired(server())));
    let for_clients = careless_server(&authority.issue(&client()));
    let cases = [
        (&right, "tls=true", HOST, "UnknownIssuer"),
        (&right, "tlsCAFile={}/other-ca.pem", HOST, "UnknownIssuer"),
        (&right, "tlsCAFile={}/ca.pem", "elsewhere", "not valid for name"),
        (&expired, "tlsCAFile={}/ca.pem", HOST, "expired"),
        (&for_clients, "tlsCAFile={}/ca.pem", HOST, "extended key usage"),
    ];
    for (server, options, host, words) in cases {
        let outcome = handshake(server, &folder.connector(options), host).await;
        outcome.assert_client_refuses(words);
        for allowing in ["tlsInsecure=true", "tlsAllowInvalidCertificates=true"] {
            let client = folder.connector(&format!("{options}&{allowing}"));
            handshake(server, &client, host).await.assert_fine();
        }
        let client = folder.connector(&format!("{options}&tlsAllowInvalidCertificates=false"));
        let outcome = handshake(server, &client, host).await;
        outcome.assert_client_refuses(words);
    }
}

#[tokio::test]
async fn server_must_prove_its_key_even_if_checks_are_disabled() {
    let (folder, authority) = (Folder::new(), Authority::new("an authority"));
    let (stolen, own) = (authority.issue(&server()), KeyPair::generate().unwrap());
    let chain = CertificateDer::pem_slice_iter(stolen.chain.as_bytes()).map(Result::unwrap);
    let key = default_provider()
        .key_provider
        .load_private_key(PrivateKeyDer::try_from(own.serialize_der()).unwrap());
    let certified = rustls::sign::CertifiedKey::new(chain.collect(), key.unwrap());
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth();
    let thief = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    let outcome = handshake(&Arc::new(thief), &folder.connector("tlsInsecure=true"), HOST).await;
    outcome.assert_client_refuses("BadSignature");
}

#[tokio::test]
async fn client_ca_requires_a_client_certificate() {
    let (folder, authority, clients) = (
        Folder::new(),
        Authority::new("an authority"),
        Authority::new("the clients' authority"),
    );
    folder.write("ca.pem", &[&authority.pem]);
    let identity = clients.issue(&client());
    folder.write("right.pem", &[&identity.chain, &identity.key]);
    let secret = encrypted(&identity.key, "a & b");
    folder.write("secret.pem", &[&identity.chain, &secret]);
    let foreign = authority.issue(&client());
    folder.write("foreign.pem", &[&foreign.chain, &foreign.key]);
    let old = clients.issue(&expired(client()));
    folder.write("expired.pem", &[&old.chain, &old.key]);
    let as_server = clients.issue_for(
        &{
            let mut params = server();
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            params
        },
        &KeyPair::generate().unwrap(),
    );
    folder.write("server.pem", &[&as_server.chain, &as_server.key]);

    let server = acceptor(&folder.listener("proxy.pem", &authority.issue(&server()), Some(&clients))).unwrap();
    let outcome_of = async |options: &str| {
        let client = folder.connector(&format!("tlsCAFile={{}}/ca.pem{options}"));
        handshake(&server, &client, HOST).await
    };
    outcome_of("&tlsCertificateKeyFile={}/right.pem").await.assert_fine();
    let password = "&tlsCertificateKeyFilePassword=a%20%26%20b";
    outcome_of(&format!("&tlsCertificateKeyFile={{}}/secret.pem{password}"))
        .await
        .assert_fine();
    let refused = [
        ("", "sent no certificates"),
        ("&tlsCertificateKeyFile={}/foreign.pem", "UnknownIssuer"),
        ("&tlsCertificateKeyFile={}/expired.pem", "expired"),
        ("&tlsCertificateKeyFile={}/server.pem", "extended key usage"),
    ];
    for (options, words) in refused {
        outcome_of(options).await.assert_server_refuses(words);
    }
}

#[tokio::test]
async fn a_session_is_resumed_only_where_clients_need_no_certificate() {
    let (folder, authority) = (Folder::new(), Authority::new("an authority"));
    folder.write("ca.pem", &[&authority.pem]);
    let identity = authority.issue(&client());
    folder.write("client.pem", &[&identity.chain, &identity.key]);
    let own = authority.issue(&server());
    let open = folder.listener("open.pem", &own, None);
    let closed = folder.listener("closed.pem", &own, Some(&authority));
    let kinds = async |servers: [&Arc<ServerConfig>; 2]| {
        let client = folder.connector("tlsCAFile={}/ca.pem&tlsCertificateKeyFile={}/client.pem");
        let mut kinds = Vec::new();
        for server in servers {
            kinds.push(handshake(server, &client, HOST).await.client.unwrap().1);
        }
        kinds
    };
    let (server, reloaded) = (acceptor(&open).unwrap(), acceptor(&open).unwrap());
    assert_eq!(
        kinds([&server, &server]).await,
        [HandshakeKind::Full, HandshakeKind::Resumed]
    );
    assert_eq!(
        kinds([&server, &reloaded]).await,
        [HandshakeKind::Full, HandshakeKind::Full]
    );
    let server = acceptor(&closed).unwrap();
    assert_eq!(
        kinds([&server, &server]).await,
        [HandshakeKind::Full, HandshakeKind::Full]
    );
}

#[tokio::test]
async fn files_are_read_again_by_another_call() {
    let (folder, authority, next) = (
        Folder::new(),
        Authority::new("an authority"),
        Authority::new("the next authority"),
    );
    folder.write("ca.pem", &[&authority.pem]);
    folder.write("next-ca.pem", &[&next.pem]);
    let files = folder.listener("proxy.pem", &authority.issue(&server()), None);
    let before = acceptor(&files).unwrap();
    assert_eq!(folder.listener("proxy.pem", &next.issue(&server()), None), files);
    let after = acceptor(&files).unwrap();
    let (client, next_client) = (
        folder.connector("tlsCAFile={}/ca.pem"),
        folder.connector("tlsCAFile={}/next-ca.pem"),
    );
    handshake(&before, &client, HOST).await.assert_fine();
    handshake(&after, &next_client, HOST).await.assert_fine();
    handshake(&after, &client, HOST)
        .await
        .assert_client_refuses("UnknownIssuer");
}
