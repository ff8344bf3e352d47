//! What users of the registries read: `env.json`. Tests in other crates have the same field names.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::programs::Programs;
use super::{instance, tls};
use crate::keys;
use crate::state_dir::StateDir;

/// Its name in the registries' folder.
pub(crate) const FILE: &str = "env.json";

/// Who may use the registries with a password.
const USER: &str = "qosm";

/// Everything about the registries that run.
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
    /// What speaks with registries.
    pub(crate) tools: Tools,
    /// What cosign is given.
    pub(crate) cosign: Cosign,
    /// The folder, for `DOCKER_CONFIG`, of a `config.json` with the passwords.
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
    /// Who may use it.
    pub(crate) username: String,
    /// With which password.
    pub(crate) password: String,
}

/// A registry with a password and a certificate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Tls {
    /// Who may use it, and where.
    #[serde(flatten)]
    pub(crate) locked: Locked,
    /// The certificate of the authority that signed its own.
    pub(crate) ca: PathBuf,
}

/// The programs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Tools {
    cosign: PathBuf,
    crane: PathBuf,
    skopeo: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    wkg: Option<PathBuf>,
}

/// What cosign is given.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cosign {
    /// A signing configuration without services, so that signing needs no network.
    pub(crate) signing_config: PathBuf,
}

impl Env {
    /// Free ports, which are the registries' the next moment, and new passwords.
    ///
    /// # Errors
    ///
    /// When there are none.
    pub(crate) fn make(state: &StateDir, programs: &Programs) -> Result<Self> {
        // All at once, or the same port would be free several times.
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

    /// What the registries in this folder were started with; `None` where there are none.
    ///
    /// # Errors
    ///
    /// When the file is there and says something else.
    pub(crate) fn read(state: &StateDir) -> Result<Option<Self>> {
        let file = state.path(FILE);
        match std::fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text).map(Some).with_context(|| format!("{} is damaged", file.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", file.display())),
        }
    }

    /// The same, where registries are needed.
    ///
    /// # Errors
    ///
    /// Where there are none.
    pub(crate) fn needed(state: &StateDir) -> Result<Self> {
        match Self::read(state)? {
            Some(env) => Ok(env),
            None => {
                bail!("there are no registries in {}: `cargo xtask registry up` starts them", state.dir().display())
            }
        }
    }

    /// Writes it.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub(crate) fn keep(&self, state: &StateDir) -> Result<()> {
        state.write(FILE, &serde_json::to_string_pretty(self).context("the environment is no JSON")?)
    }
}
