//! The running registries, and the programs that use them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde::Deserialize;
use tempfile::TempDir;

/// The content of `env.json`, which `cargo xtask registry up` writes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Env {
    /// HTTP, without credentials.
    pub(crate) plain: Open,
    /// HTTP, with a password.
    pub(crate) locked: Locked,
    /// HTTPS, with a password.
    pub(crate) tls: Tls,
    /// HTTP, without credentials, with the referrers API; in memory.
    pub(crate) referrers: Open,
    pub(crate) tools: Tools,
    pub(crate) cosign: Cosign,
    /// The folder of a `config.json` with the passwords, for `DOCKER_CONFIG`.
    pub(crate) docker_config: PathBuf,
}

/// A registry without a password.
#[derive(Debug, Deserialize)]
pub(crate) struct Open {
    /// Address and port.
    pub(crate) host: String,
}

/// A registry with a password.
#[derive(Debug, Deserialize)]
pub(crate) struct Locked {
    pub(crate) host: String,
    pub(crate) username: String,
    pub(crate) password: String,
}

/// A registry with a password and a certificate for 127.0.0.1 and localhost.
#[derive(Debug, Deserialize)]
pub(crate) struct Tls {
    pub(crate) host: String,
    pub(crate) username: String,
    pub(crate) password: String,
    /// The certificate of the authority that signed the registry's.
    pub(crate) ca: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Tools {
    cosign: PathBuf,
    crane: PathBuf,
    skopeo: PathBuf,
    wkg: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cosign {
    /// A signing configuration without services: signing needs no network.
    pub(crate) signing_config: PathBuf,
}

/// The environment. A test without it shows nothing, so it is required.
pub(crate) fn env() -> &'static Env {
    static ENV: LazyLock<Env> = LazyLock::new(|| {
        let Some(file) = std::env::var_os("QOSM_REGISTRY_ENV") else {
            unreachable!(
                "QOSM_REGISTRY_ENV is not set: these tests need registries; run: make test ARGS=\"--only registry\""
            )
        };
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
    });
    &ENV
}

/// The binary under test, without passwords and authorities except those that the test sets.
pub(crate) fn qosm() -> Command {
    let mut qosm = Command::new(env!("CARGO_BIN_EXE_qosm"));
    for variable in ["DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "SSL_CERT_FILE", "SSL_CERT_DIR"] {
        qosm.env_remove(variable);
    }
    qosm.env("NO_COLOR", "1");
    qosm
}

/// cosign, whose keys have no passphrase.
pub(crate) fn cosign() -> Command {
    let mut cosign = knowing(&env().tools.cosign);
    cosign.env("COSIGN_PASSWORD", "");
    cosign
}

/// crane.
pub(crate) fn crane() -> Command {
    knowing(&env().tools.crane)
}

/// skopeo.
pub(crate) fn skopeo() -> Command {
    knowing(&env().tools.skopeo)
}

/// wkg, which is compiled for those tests alone that `make test` leaves out.
pub(crate) fn wkg() -> Command {
    let Some(wkg) = &env().tools.wkg else {
        unreachable!(
            "wkg is not there: run `cargo xtask registry build`, or `make test ARGS=\"--only registry --filter wkg\"`"
        )
    };
    knowing(wkg)
}

/// A program with the passwords of all registries, which trusts only the authority of the one with TLS.
fn knowing(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("DOCKER_CONFIG", &env().docker_config).env("SSL_CERT_FILE", &env().tls.ca);
    command.env("REGISTRY_AUTH_FILE", env().docker_config.join("config.json"));
    command
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs to the end.
pub(crate) fn run(command: &mut Command) -> Ran {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| unreachable!("{command:?}: {error}"));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

impl Ran {
    /// Standard output of a run that must succeed.
    #[track_caller]
    pub(crate) fn well(self) -> String {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self.stdout
    }

    /// Standard error of a run that must fail.
    #[track_caller]
    pub(crate) fn badly(self) -> String {
        assert!(self.code.is_some_and(|code| code != 0), "{self:#?}");
        self.stderr
    }
}

/// A pair of keys.
pub(crate) struct Keys {
    folder: TempDir,
}

impl Keys {
    pub(crate) fn new(name: &str) -> Self {
        let folder = tempfile::Builder::new().prefix(name).tempdir().unwrap();
        run(cosign().arg("generate-key-pair").current_dir(folder.path())).well();
        Self { folder }
    }

    pub(crate) fn public(&self) -> String {
        self.folder.path().join("cosign.pub").display().to_string()
    }

    fn cosign(&self, verb: &str) -> Command {
        let mut command = cosign();
        command.arg(verb).arg("--allow-http-registry").arg("--key");
        let key = if verb == "sign" { "cosign.key" } else { "cosign.pub" };
        command.arg(self.folder.path().join(key));
        command
    }

    /// Signs an artefact; as a bundle, or in the format of cosign 1 and 2.
    pub(crate) fn sign(&self, image: &str, is_bundle: bool, annotations: &[&str]) {
        let mut sign = self.cosign("sign");
        sign.arg("--yes");
        if is_bundle {
            sign.arg("--signing-config").arg(Path::new(&env().cosign.signing_config));
        } else {
            sign.args(["--new-bundle-format=false", "--use-signing-config=false", "--tlog-upload=false"]);
        }
        for annotation in annotations {
            sign.args(["-a", annotation]);
        }
        run(sign.arg(image)).well();
    }

    /// Verifies an artefact with cosign.
    pub(crate) fn verify(&self, image: &str) {
        run(self.cosign("verify").args(["--insecure-ignore-tlog", image])).well();
    }
}
