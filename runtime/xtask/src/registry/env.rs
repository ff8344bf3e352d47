//! `env.json`, which users of the registries read. Tests in other crates use the same field names.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::programs::Programs;
use super::{instance, tls};
use crate::keys;
use crate::state_dir::StateDir;

/// Name of the file in the registries' folder.
pub(crate) const FILE: &str = "env.json";

/// User name for the registries with a password.
const USER: &str = "qosm";

/// Everything about the running registries.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Env {
    /// HTTP, without credentials.
    pub(crate) plain: Open,
    /// HTTP, with a password.
    pub(crate) locked: Locked,
    /// HTTPS, with a password.
    pub(crate) tls: Tls,
    /// HTTP, without credentials, with the referrers API.
    pub(crate) referrers: Open,
    /// Programs that access registries.
    pub(crate) tools: Tools,
    /// Files for cosign.
    pub(crate) cosign: Cosign,
    /// Folder of a `config.json` with the passwords, for `DOCKER_CONFIG`.
    pub(crate) docker_config: PathBuf,
}

/// A registry without credentials.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Open {
    /// Address and port.
    pub(crate) host: String,
}

/// A registry with a password.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Locked {
    /// Address and port.
    pub(crate) host: String,
    /// The user name.
    pub(crate) username: String,
    /// The password.
    pub(crate) password: String,
}

/// A registry with a password and a certificate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Tls {
    /// Address, user name and password.
    #[serde(flatten)]
    pub(crate) locked: Locked,
    /// Certificate of the authority that signed the registry's certificate.
    pub(crate) ca: PathBuf,
}

/// Paths of the programs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Tools {
    cosign: PathBuf,
    crane: PathBuf,
    skopeo: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    wkg: Option<PathBuf>,
}

/// Files for cosign.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cosign {
    /// A signing configuration without services, so that signing needs no network.
    pub(crate) signing_config: PathBuf,
}

impl Env {
    /// Chooses free ports, which the registries use immediately, and new passwords.
    ///
    /// # Errors
    ///
    /// If there are none.
    pub(crate) fn make(state: &StateDir, programs: &Programs) -> Result<Self> {
        // Bind all before closing any; otherwise the same port could be chosen several times.
        let listeners = [(); 4].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let mut hosts = [const { String::new() }; 4];
        for (host, listener) in hosts.iter_mut().zip(listeners) {
            let address = listener.and_then(|listener| listener.local_addr()).context("there is no free port")?;
            *host = address.to_string();
        }
        let [plain, locked, tls, referrers] = hosts;
        let with_password = |host: String| -> Result<Locked> {
            Ok(Locked { host, username: USER.to_owned(), password: keys::random()? })
        };
        Ok(Self {
            plain: Open { host: plain },
            locked: with_password(locked)?,
            tls: Tls { locked: with_password(tls)?, ca: state.path(tls::CA) },
            referrers: Open { host: referrers },
            tools: Tools {
                cosign: programs.cosign.clone(),
                crane: programs.crane.clone(),
                skopeo: programs.skopeo.clone(),
                wkg: programs.wkg.clone(),
            },
            cosign: Cosign { signing_config: state.path(instance::SIGNING_CONFIG) },
            docker_config: state.path(instance::DOCKER_CONFIG),
        })
    }

    /// The environment of the registries in this folder; `None` if there are none.
    ///
    /// # Errors
    ///
    /// If the file exists but is invalid.
    pub(crate) fn read(state: &StateDir) -> Result<Option<Self>> {
        let file = state.path(FILE);
        match std::fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text).map(Some).with_context(|| format!("{} is damaged", file.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", file.display())),
        }
    }

    /// The environment of registries that have to exist.
    ///
    /// # Errors
    ///
    /// If there are none.
    pub(crate) fn needed(state: &StateDir) -> Result<Self> {
        match Self::read(state)? {
            Some(env) => Ok(env),
            None => {
                bail!("there are no registries in {}: `cargo xtask registry up` starts them", state.dir().display())
            }
        }
    }

    /// Writes the file.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub(crate) fn keep(&self, state: &StateDir) -> Result<()> {
        state.write(FILE, &serde_json::to_string_pretty(self).context("the environment is no JSON")?)
    }
}
