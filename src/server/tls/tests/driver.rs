//! Compares the driver with `connector`: both accept the same connection strings.

use std::net::Ipv4Addr;
use std::time::Duration;

use bson::doc;
use mongodb::Client;
use mongodb::options::{ClientOptions, ServerAddress};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;

/// A test fails if there is no reply in this time.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether the handshake of the first connection to a server on a free port succeeds.
async fn accepts(server: Arc<ServerConfig>, connect: impl AsyncFnOnce(u16)) -> bool {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let accepted = async {
        let (socket, _) = listener.accept().await.unwrap();
        let mut stream = TlsAcceptor::from(server).accept(socket).await?;
        let mut header = [0; 16];
        stream.read_exact(&mut header).await?;
        assert_eq!(first_bytes(&header), SniffedProtocol::Mongo);
        std::io::Result::Ok(())
    };
    tokio::select! {
        accepted = timeout(PATIENCE, accepted) => accepted.unwrap().is_ok(),
        () = async { connect(port).await; std::future::pending().await } => unreachable!(),
    }
}

async fn with_driver(server: Arc<ServerConfig>, options: &TlsOptions, host: &str) -> bool {
    accepts(server, async |port| {
        let host = ServerAddress::Tcp {
            host: host.to_owned(),
            port: Some(port),
        };
        let tls = Tls::Enabled(options.clone());
        let options = ClientOptions::builder()
            .hosts(vec![host])
            .tls(tls)
            .direct_connection(true);
        let client = Client::with_options(options.build()).unwrap();
        client
            .database("admin")
            .run_command(doc! { "ping": 1 })
            .await
            .unwrap_err();
    })
    .await
}

async fn with_connector(server: Arc<ServerConfig>, options: &TlsOptions, host: &str) -> bool {
    accepts(server, async |port| {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let connector = TlsConnector::from(connector(options).unwrap());
        if let Ok(mut stream) = connector.connect(server_name(host).unwrap(), socket).await {
            let header = [16, 1, 0, 2013].map(i32::to_le_bytes).concat();
            stream.write_all(&header).await.unwrap();
            std::future::pending::<()>().await;
        }
    })
    .await
}

#[tokio::test]
async fn connection_string_options_equal_the_drivers() {
    let (folder, authority) = (Folder::new(), Authority::new("an authority"));
    folder.write("ca.pem", &[&authority.pem]);
    folder.write(
        "bundle.pem",
        &[
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
            &authority.pem,
        ],
    );
    let identity = authority.issue(&client());
    folder.write("client.pem", &[&identity.chain, &identity.key]);
    folder.write("secret.pem", &[&identity.chain, &encrypted(&identity.key, "hunter2")]);
    let own = authority.issue(&params(&["localhost"]));
    let open = acceptor(&folder.listener("open.pem", &own, None)).unwrap();
    let closed = acceptor(&folder.listener("closed.pem", &own, Some(&authority))).unwrap();
    let cases = [
        (&open, "tls=true", "localhost", false),
        (&open, "tls=true&tlsCAFile={}/ca.pem", "localhost", true),
        (&open, "ssl=true&tlsCAFile={}/bundle.pem", "localhost", true),
        (&open, "tlsCAFile={}/ca.pem", "127.0.0.1", false),
        (&open, "tlsInsecure=true", "127.0.0.1", true),
        (&open, "tlsAllowInvalidCertificates=true", "127.0.0.1", true),
        (&closed, "tlsCAFile={}/ca.pem", "localhost", false),
        (
            &closed,
            "tlsCAFile={}/ca.pem&tlsCertificateKeyFile={}/client.pem",
            "localhost",
            true,
        ),
        (
            &closed,
            "tlsCAFile={}/ca.pem&tlsCertificateKeyFile={}/secret.pem&tlsCertificateKeyFilePassword=hunter2",
            "localhost",
            true,
        ),
    ];
    for (server, options, host, expected) in cases {
        let tls = folder.options(options);
        let driver = with_driver(Arc::clone(server), &tls, host).await;
        let link = with_connector(Arc::clone(server), &tls, host).await;
        assert_eq!((driver, link), (expected, expected), "{options} at {host}");
    }
}

#[test]
fn the_driver_knows_no_other_tls_option() {
    // If the driver supports another option, `connector` must support it, too.
    for option in [
        "tlsAllowInvalidHostnames",
        "tlsDisableOCSPEndpointCheck",
        "tlsDisableCertificateRevocationCheck",
    ] {
        let error = ConnectionString::parse(format!("mongodb://db/?tls=true&{option}=true")).unwrap_err();
        assert!(error.to_string().contains("is an invalid option"), "{error}");
    }
}
