//! `rediss://`: the hive trusts the certificates that the machine trusts.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use honeyflow_hive::{HiveStore, Request};
use honeyflow_runtime::Class;
use honeyflow_services::{Server, throwaway};

use crate::server;

const URL: &str = "HONEYFLOW_TEST_REDISS_URL";

/// Makes a certificate for this machine, which no machine trusts, and its key. Returns false if there is no `openssl`.
fn certify(folder: &Path) -> bool {
    // The server runs as another user.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", "key.pem", "-out", "certificate.pem"])
        .current_dir(folder)
        .output();
    if !made.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED redis: no openssl to make a certificate with");
        return false;
    }
    fs::set_permissions(folder.join("key.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    true
}

#[tokio::test]
async fn hv_40_tls_works_with_servers_that_the_machine_trusts() {
    let folder = tempfile::tempdir().unwrap();
    if !certify(folder.path()) {
        return;
    }
    let path = |file: &str| folder.path().join(file).to_str().unwrap().to_owned();
    let (certificate, key) = (path("certificate.pem"), path("key.pem"));
    let port = server::free_port().to_string();
    let arguments = ["--tls-port", &port, "--tls-cert-file", &certificate, "--tls-key-file", &key];
    let arguments = [&arguments[..], &["--tls-ca-cert-file", &certificate, "--tls-auth-clients", "no"]].concat();
    let Some(plain) = throwaway(Server::Redis, &arguments) else { return };
    let url = format!("rediss://127.0.0.1:{port}/");
    let failure =
        server::open(&url, "x").call(Request::View).await.expect_err("the machine does not trust the certificate");
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "no-connection"), "{failure}");
    assert!(failure.message.contains("certificate"), "{failure}");
    let not_tls = plain.url().replace("redis://", "rediss://");
    let failure = server::open(&not_tls, "x").call(Request::View).await.expect_err("it speaks no TLS there");
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "no-connection"), "{failure}");
    // The trusted certificates are read once per process.
    let known = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tls::a_server_that_the_machine_knows"])
        .env("SSL_CERT_FILE", &certificate)
        .env(URL, &url)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&known.stdout);
    assert!(known.status.success() && said.contains("1 passed"), "{said}");
}

/// The test above runs this one in a process that trusts the certificate; alone it does nothing.
#[tokio::test]
async fn a_server_that_the_machine_knows() {
    let Ok(url) = std::env::var(URL) else { return };
    server::open(&url, "x").call(Request::View).await.expect("known");
}
