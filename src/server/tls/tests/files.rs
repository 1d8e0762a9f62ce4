//! Accepted files, and the errors for others.

use super::*;

/// The error for a listener with this certificate, key and client authorities.
fn report(cert: &str, key: &str, client_ca: Option<&str>) -> String {
    let folder = Folder::new();
    let files = TlsFiles {
        table: TlsTable::Listen,
        cert: folder.write("proxy.pem", &[cert]),
        key: folder.write("proxy.key", &[key]),
        client_ca: client_ca.map(|text| folder.write("ca.pem", &[text])),
    };
    acceptor(&files).map_or_else(|error| folder.report(&error), |_| "fine".to_owned())
}

/// The error for a connection string's options with files in a folder that the test fills.
fn report_of_options(fill: impl FnOnce(&Folder), options: &str) -> String {
    let folder = Folder::new();
    fill(&folder);
    connector(&folder.options(options)).map_or_else(|error| folder.report(&error), |_| "fine".to_owned())
}

/// The text with an invalid base64 character.
fn broken(pem: &str) -> String {
    let mut lines: Vec<String> = pem.lines().map(str::to_owned).collect();
    lines[1].replace_range(0..1, "!");
    lines.join("\n")
}

/// The report without the reason why a key cannot be decrypted. A wrong password gives random bytes. One time in
/// 256 they end with a valid padding, and the reason is that they are no key.
fn without_reason(report: &str) -> String {
    const BEFORE: &str = "cannot be decrypted: ";
    let Some((before, rest)) = report.split_once(BEFORE) else {
        return report.to_owned();
    };
    let (_, behind) = rest.split_once("; ").unwrap();
    format!("{before}{BEFORE}REASON; {behind}")
}

/// A key as `openssl rsa -aes256` writes it; `openssl ec` does the same.
const LEGACY: &str = "-----BEGIN RSA PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-256-CBC,00

AAAA
-----END RSA PRIVATE KEY-----
";

fn without_its_end(pem: &str) -> &str {
    &pem[..pem.find("-----END").unwrap()]
}

#[test]
fn every_kind_of_key_is_read() {
    let authority = Authority::new("an authority");
    let check = |key: &KeyPair, label: Option<&str>| {
        let identity = authority.issue_for(&server(), key);
        let text = label.map_or(identity.key.clone(), |label| traditional(&identity.key, label));
        assert_eq!(report(&identity.chain, &text, None), "fine", "{text}");
        // In one file, with the key first.
        let folder = Folder::new();
        let both = folder.write("both.pem", &["words before\n", &text, &identity.chain]);
        let files = TlsFiles {
            table: TlsTable::Listen,
            cert: both.clone(),
            key: both,
            client_ca: None,
        };
        acceptor(&files).unwrap();
    };
    let p256 = KeyPair::generate().unwrap();
    check(&p256, None);
    check(&p256, Some("EC PRIVATE KEY"));
    check(&KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap(), None);
    check(&KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap(), None);
    let rsa = ::pem::parse(RSA_KEY).unwrap().into_contents();
    let rsa = KeyPair::try_from(rsa).unwrap();
    check(&rsa, None);
    check(&rsa, Some("RSA PRIVATE KEY"));
}

#[test]
fn invalid_tls_file_is_reported_with_name_and_remedy() {
    let authority = Authority::new("an authority");
    let Identity { chain, key } = authority.issue(&server());
    let other = authority.issue(&server());
    let mut early = server();
    early.not_before = date_time_ymd(3000, 1, 1);
    let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let no_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let expired_chain = authority.issue(&expired(server())).chain;
    let reports = [
        report("", &key, None),
        report(&key, &key, None),
        report(&broken(&chain), &key, None),
        report(without_its_end(&chain), &key, None),
        report(nonsense, &key, None),
        report(&expired_chain, &key, None),
        report(&authority.issue(&early).chain, &key, None),
        report(&authority.issue(&client()).chain, &key, None),
        report(&chain, "", None),
        report(&chain, &chain, None),
        report(&chain, without_its_end(&key), None),
        report(&chain, &encrypted(&key, "hunter2"), None),
        report(&chain, LEGACY, None),
        report(&format!("{chain}{LEGACY}"), &key, None),
        report(&chain, no_key, None),
        report(&chain, &other.key, None),
        report(&format!("{}{chain}", authority.pem), &key, None),
        report(&chain, &key, Some("")),
        report(&chain, &key, Some(&format!("{}{nonsense}", authority.pem))),
        report(&chain, &key, Some(&authority.pem)),
    ];
    insta::assert_snapshot!(reports.join("\n"), @r#"
    `listen.tls.cert`: DIR/proxy.pem contains no certificate; name a PEM file with a section BEGIN CERTIFICATE
    `listen.tls.cert`: DIR/proxy.pem contains no certificate; name a PEM file with a section BEGIN CERTIFICATE
    `listen.tls.cert`: DIR/proxy.pem is not valid PEM: a section is not base64; write it again, with the BEGIN and END lines of every section
    `listen.tls.cert`: DIR/proxy.pem is not valid PEM: the end of CERTIFICATE is missing; write it again, with the BEGIN and END lines of every section
    `listen.tls.cert`: DIR/proxy.pem contains a certificate (number 1) that cannot be used: BadEncoding; replace the certificate
    `listen.tls.cert`: DIR/proxy.pem contains a certificate that expired at 2020-02-29T00:00:00Z; renew the certificate
    `listen.tls.cert`: DIR/proxy.pem contains a certificate that is not valid before 3000-01-01T00:00:00Z; check this host's clock, or wait
    `listen.tls.cert`: DIR/proxy.pem contains a certificate that is not meant for servers; issue it with the extended key usage serverAuth, or with none
    `listen.tls.key`: DIR/proxy.key contains no private key; name the key's file in `listen.tls.key`, or put the key into the file of `listen.tls.cert`
    `listen.tls.key`: DIR/proxy.key contains no private key; name the key's file in `listen.tls.key`, or put the key into the file of `listen.tls.cert`
    `listen.tls.key`: DIR/proxy.key is not valid PEM: the end of PRIVATE KEY is missing; write it again, with the BEGIN and END lines of every section
    `listen.tls.key`: DIR/proxy.key contains an encrypted private key; decrypt it (openssl pkey -in FILE -out NEW_FILE), and make it readable for this user only
    `listen.tls.key`: DIR/proxy.key contains a private key encrypted in OpenSSL's older format; decrypt it (openssl pkey -in FILE -out NEW_FILE), and make it readable for this user only
    `listen.tls.cert`: DIR/proxy.pem contains a private key encrypted in OpenSSL's older format; decrypt it (openssl pkey -in FILE -out NEW_FILE), and make it readable for this user only
    `listen.tls.key`: DIR/proxy.key contains a private key that cannot be used: failed to parse private key as RSA, ECDSA, or EdDSA; use an RSA key of 2048 bits or more, an ECDSA key on P-256 or P-384, or an Ed25519 key, as PEM
    `listen.tls.key`: DIR/proxy.key contains a private key that does not belong to the certificate in DIR/proxy.pem; name the key for which the certificate was issued, and put that certificate first in its file
    `listen.tls.key`: DIR/proxy.key contains a private key that does not belong to the certificate in DIR/proxy.pem; name the key for which the certificate was issued, and put that certificate first in its file
    `listen.tls.client_ca`: DIR/ca.pem contains no certificate; name a PEM file with a section BEGIN CERTIFICATE
    `listen.tls.client_ca`: DIR/ca.pem contains a certificate (number 2) that cannot be used: BadEncoding; replace the certificate
    fine
    "#);
}

#[test]
fn unreadable_tls_file_is_reported() {
    let folder = Folder::new();
    let huge = folder.write("huge.pem", &[]);
    std::fs::File::create(&huge).unwrap().set_len(1 << 30).unwrap();
    let report = |cert: &str| {
        let cert = folder.path(cert);
        let files = TlsFiles {
            table: TlsTable::Listen,
            key: cert.clone(),
            cert,
            client_ca: None,
        };
        folder.report(&acceptor(&files).unwrap_err())
    };
    let reports = ["missing.pem", ".", "huge.pem"].map(report);
    insta::assert_snapshot!(reports.join("\n"), @r#"
    `listen.tls.cert`: DIR/missing.pem cannot be read: No such file or directory (os error 2); name a PEM file that is readable for this user
    `listen.tls.cert`: DIR/. cannot be read: Is a directory (os error 21); name a PEM file that is readable for this user
    `listen.tls.cert`: DIR/huge.pem is longer than 8388608 bytes; name a PEM file that is readable for this user
    "#);
}

#[test]
fn invalid_tls_file_of_the_connection_string_is_reported() {
    let authority = Authority::new("an authority");
    let identity = authority.issue(&client());
    let fill = |folder: &Folder| {
        let secret = encrypted(&identity.key, "hunter2");
        folder.write("ca.pem", &[&authority.pem]);
        folder.write("empty.pem", &[]);
        folder.write("broken.pem", &[&broken(&authority.pem)]);
        folder.write("plain.pem", &[&identity.chain, &identity.key]);
        folder.write("secret.pem", &[&identity.chain, &secret]);
        folder.write("legacy.pem", &[&identity.chain, LEGACY]);
        folder.write("no-key.pem", &[&identity.chain]);
        folder.write("mismatch.pem", &[&authority.pem, &identity.key]);
        // The driver skips invalid certificates if there is a valid one.
        folder.write("bundle.pem", &[&broken(&authority.pem), "\n", &authority.pem]);
    };
    let reports = [
        "tls=true",
        "tlsCAFile={}/ca.pem",
        "tlsCAFile={}/bundle.pem",
        "tlsCAFile={}/missing.pem",
        "tlsCAFile={}",
        "tlsCAFile={}/empty.pem",
        "tlsCAFile={}/broken.pem",
        "tlsCertificateKeyFile={}/plain.pem",
        "tlsCertificateKeyFile={}/missing.pem",
        "tlsCertificateKeyFile={}/ca.pem",
        "tlsCertificateKeyFile={}/no-key.pem",
        "tlsCertificateKeyFile={}/mismatch.pem",
        "tlsCertificateKeyFile={}/legacy.pem&tlsCertificateKeyFilePassword=hunter2",
        "tlsCertificateKeyFile={}/secret.pem",
        "tlsCertificateKeyFile={}/secret.pem&tlsCertificateKeyFilePassword=hunter2",
        "tlsCertificateKeyFile={}/secret.pem&tlsCertificateKeyFilePassword=hunter3",
        "tlsCertificateKeyFile={}/plain.pem&tlsCertificateKeyFilePassword=hunter2",
    ]
    .map(|options| format!("{options}: {}", report_of_options(fill, options)))
    .map(|report| without_reason(&report));
    insta::assert_snapshot!(reports.join("\n"), @r#"
    tls=true: fine
    tlsCAFile={}/ca.pem: fine
    tlsCAFile={}/bundle.pem: fine
    tlsCAFile={}/missing.pem: `upstream.uri`, tlsCAFile: DIR/missing.pem cannot be read: No such file or directory (os error 2); name a PEM file that is readable for this user
    tlsCAFile={}: `upstream.uri`, tlsCAFile: DIR cannot be read: Is a directory (os error 21); name a PEM file that is readable for this user
    tlsCAFile={}/empty.pem: `upstream.uri`, tlsCAFile: DIR/empty.pem contains no certificate; name a PEM file with a section BEGIN CERTIFICATE
    tlsCAFile={}/broken.pem: `upstream.uri`, tlsCAFile: DIR/broken.pem is not valid PEM: a section is not base64; write it again, with the BEGIN and END lines of every section
    tlsCertificateKeyFile={}/plain.pem: fine
    tlsCertificateKeyFile={}/missing.pem: `upstream.uri`, tlsCertificateKeyFile: DIR/missing.pem cannot be read: No such file or directory (os error 2); name a PEM file that is readable for this user
    tlsCertificateKeyFile={}/ca.pem: `upstream.uri`, tlsCertificateKeyFile: DIR/ca.pem contains no private key; put the key into the same file as the certificate
    tlsCertificateKeyFile={}/no-key.pem: `upstream.uri`, tlsCertificateKeyFile: DIR/no-key.pem contains no private key; put the key into the same file as the certificate
    tlsCertificateKeyFile={}/mismatch.pem: `upstream.uri`, tlsCertificateKeyFile: DIR/mismatch.pem contains a private key that does not belong to the certificate in DIR/mismatch.pem; name the key for which the certificate was issued, and put that certificate first in its file
    tlsCertificateKeyFile={}/legacy.pem&tlsCertificateKeyFilePassword=hunter2: `upstream.uri`, tlsCertificateKeyFile: DIR/legacy.pem contains a private key encrypted in OpenSSL's older format; encrypt it as PKCS#8 (openssl pkcs8 -topk8 -v2 aes-256-cbc -in FILE)
    tlsCertificateKeyFile={}/secret.pem: `upstream.uri`, tlsCertificateKeyFile: DIR/secret.pem contains an encrypted private key; give tlsCertificateKeyFilePassword in `upstream.uri`
    tlsCertificateKeyFile={}/secret.pem&tlsCertificateKeyFilePassword=hunter2: fine
    tlsCertificateKeyFile={}/secret.pem&tlsCertificateKeyFilePassword=hunter3: `upstream.uri`, tlsCertificateKeyFile: DIR/secret.pem contains a private key that cannot be decrypted: REASON; correct tlsCertificateKeyFilePassword, or encrypt the key again (openssl pkcs8 -topk8 -v2 aes-256-cbc)
    tlsCertificateKeyFile={}/plain.pem&tlsCertificateKeyFilePassword=hunter2: `upstream.uri`, tlsCertificateKeyFile: DIR/plain.pem contains no key in a section BEGIN ENCRYPTED PRIVATE KEY, although tlsCertificateKeyFilePassword is given; remove the password, or encrypt the key (openssl pkcs8 -topk8 -v2 aes-256-cbc -in FILE)
    "#);
}

#[test]
fn a_host_is_a_name_or_an_address() {
    let check = |host: &str, expected: Option<&str>| {
        let name = server_name(host).ok().map(|name| name.to_str().into_owned());
        assert_eq!(name.as_deref(), expected, "{host}");
    };
    check("db.example.com", Some("db.example.com"));
    check("mongo_1", Some("mongo_1"));
    check("localhost", Some("localhost"));
    check("127.0.0.1", Some("127.0.0.1"));
    check("::1", Some("::1"));
    check("[::1]", Some("::1"));
    check("", None);
    check("[db]", Some("db"));
    check("db:27017", None);
    check("fe80::1%eth0", None);
    insta::assert_snapshot!(server_name("no name").unwrap_err(), @r#""no name" is neither a host name nor an IP address that a certificate can contain; write the server's name as in its certificate"#);
}
