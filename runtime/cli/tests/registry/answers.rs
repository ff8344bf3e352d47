//! The prerequisites of the other tests: the registries behave as such, and the tools exist.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use crate::artefacts::{Desk, module};
use crate::env::{Locked, cosign, crane, env, qosm, run, skopeo};

/// The response of a registry without TLS: the status line, the headers and the document.
fn answer(host: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    let accept = "application/vnd.oci.image.index.v1+json";
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn every_tool_answers_and_every_registry_lets_in_whom_it_should() {
    for (mut tool, question, said) in [
        (qosm(), "--version", "qosm "),
        (cosign(), "version", "v3.1."),
        (crane(), "version", "0.22."),
        (skopeo(), "--version", "skopeo version 1."),
    ] {
        let printed = run(tool.arg(question)).well();
        assert!(printed.contains(said), "{tool:?}: {printed}");
    }

    for open in [&env().plain, &env().referrers] {
        let answer = answer(&open.host, "/v2/");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let refused = answer(&env().locked.host, "/v2/");
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    assert!(refused.to_lowercase().contains("www-authenticate: basic realm="), "{refused}");

    // Without the authority, without the password, and with both.
    let (locked, tls) = (&env().locked.host, &env().tls.host);
    let nowhere = Path::new("/nonexistent");
    let stranger = run(crane().args(["catalog", tls]).env("SSL_CERT_FILE", nowhere).env("SSL_CERT_DIR", nowhere));
    assert!(stranger.badly().contains("x509: certificate signed by unknown authority"));
    for host in [locked, tls] {
        let mut anonymous = crane();
        anonymous.env("DOCKER_CONFIG", nowhere).env("REGISTRY_AUTH_FILE", nowhere).env("HOME", nowhere);
        let said = run(anonymous.args(["catalog", host])).badly();
        assert!(said.contains("UNAUTHORIZED"), "{said}");
        run(crane().args(["catalog", host])).well();
    }

    let tls = &env().tls;
    let with_tls = Locked { host: tls.host.clone(), username: tls.username.clone(), password: tls.password.clone() };
    for (locked, verify) in [(&env().locked, "--tls-verify=false"), (&with_tls, "--tls-verify=true")] {
        let folder = tempfile::tempdir().unwrap();
        let mut login = skopeo();
        login.args(["login", verify, "--username", &locked.username, "--password", &locked.password, &locked.host]);
        run(login.env("REGISTRY_AUTH_FILE", folder.path().join("auth.json"))).well();
    }
}

#[test]
fn a_module_is_pushed_and_signed_without_network_and_its_signature_is_found_either_way() {
    let desk = Desk::new();
    let key = |name: &str| desk.path(name).display().to_string();
    run(cosign().arg("generate-key-pair").current_dir(desk.path("."))).well();
    for (registry, has_api) in [(&env().plain, false), (&env().referrers, true)] {
        let reference = format!("{}/tools/cpu-burst:0.1.0", registry.host);
        let digest = desk.push(&module("cpu-burst"), &reference);
        let hex = digest.trim_start_matches("sha256:");
        let image = format!("{}/tools/cpu-burst@{digest}", registry.host);
        let offline = Path::new(&env().cosign.signing_config);
        let mut sign = cosign();
        sign.args(["sign", "--yes", "--allow-http-registry", "--key", &key("cosign.key"), "--signing-config"]);
        run(sign.arg(offline).arg(&image)).well();
        let mut verify = cosign();
        verify.args(["verify", "--insecure-ignore-tlog", "--allow-http-registry", "--key", &key("cosign.pub"), &image]);
        run(&mut verify).well();

        let referrers = answer(&registry.host, &format!("/v2/tools/cpu-burst/referrers/{digest}"));
        let tag = answer(&registry.host, &format!("/v2/tools/cpu-burst/manifests/sha256-{hex}"));
        let (found, missing) = if has_api { (&referrers, &tag) } else { (&tag, &referrers) };
        assert!(found.starts_with("HTTP/1.1 200 ") && found.contains("sigstore.bundle"), "{found}");
        assert!(missing.starts_with("HTTP/1.1 404 "), "{missing}");
    }
}
