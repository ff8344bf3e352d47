//! The operator's settings for registries: access to each, and bounds.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::RegistryError;
use crate::trust::TrustPolicy;

/// Upper bound of `moduleMiB`: the engine accepts no larger module.
const MAX_MODULE_MIB: u64 = 16;

/// Registries, credentials, trust, and bounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RegistrySettings {
    /// Registries that are not reached in the usual way: HTTPS, the system's certificate authorities, no mirror.
    pub hosts: Vec<HostSettings>,
    /// Files with credentials in the form of Docker's `config.json`, read in this order before Docker's own. A folder stands for
    /// the files `.dockerconfigjson` and `config.json` in it and its subfolders, the form of mounted pull secrets.
    pub credentials: Vec<PathBuf>,
    /// Which signatures count for which artefacts. Without rules nothing is checked; with rules, an artefact that matches none is refused.
    pub verification: TrustPolicy,
    /// Limits.
    pub limits: RegistryLimits,
}

/// How one registry is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HostSettings {
    /// The registry's host, with the port if there is one.
    pub registry: String,
    /// Whether to use HTTP without TLS. Without an entry, only registries on this machine (`localhost`, `127.…`) use it.
    pub plain_http: bool,
    /// A file of additional certificate authorities in PEM form.
    pub ca: Option<PathBuf>,
    /// `HOST[/PREFIX]`: mirrors that are tried before the registry when pulling, in this order. Each may have its own entry.
    pub mirrors: Vec<String>,
}

/// Limits of pulls and of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RegistryLimits {
    /// The largest module, in MiB.
    #[serde(rename = "moduleMiB")]
    pub module_mib: u64,
    /// Size of the local store, in MiB; artefacts in use may exceed it.
    #[serde(rename = "storeMiB")]
    pub store_mib: u64,
    /// Time limit of a pull, in seconds, however slowly a registry sends.
    #[serde(rename = "pullSeconds")]
    pub pull_seconds: u64,
}

impl Default for RegistryLimits {
    fn default() -> Self {
        Self { module_mib: 16, store_mib: 256, pull_seconds: 600 }
    }
}

impl RegistryLimits {
    /// The largest module, in bytes.
    pub(crate) fn module_bytes(self) -> u64 {
        self.module_mib.saturating_mul(1 << 20)
    }

    /// Size of the local store, in bytes.
    pub(crate) fn store_bytes(self) -> u64 {
        self.store_mib.saturating_mul(1 << 20)
    }
}

impl RegistrySettings {
    /// The files and folders that are read repeatedly while registries are in use, whether or not they exist: credentials, also
    /// those of Docker and Podman, certificates of registries, and keys.
    pub fn paths(&self) -> Vec<PathBuf> {
        let certificates = self.hosts.iter().filter_map(|host| host.ca.clone());
        let keys = self.verification.rules.iter().flat_map(|rule| &rule.keys).filter_map(|key| key.path.clone());
        let configured = self.credentials.iter().cloned();
        configured.chain(certificates).chain(keys).chain(crate::credentials::usual_files()).collect()
    }

    /// Checks the settings, before a registry is contacted.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Settings`] names the entry and the field.
    pub fn check(&self) -> Result<(), RegistryError> {
        let fail = |index: usize, field: &str, message: String| {
            Err(RegistryError::Settings { place: format!("hosts[{index}].{field}"), message })
        };
        if self.limits.module_mib > MAX_MODULE_MIB {
            return Err(RegistryError::Settings {
                place: "limits.moduleMiB".to_owned(),
                message: format!("the engine takes no module above {MAX_MODULE_MIB} MiB; say that or less"),
            });
        }
        for (index, host) in self.hosts.iter().enumerate() {
            if host.registry.is_empty() || host.registry.contains(['/', '@', ' ']) {
                let registry = &host.registry;
                return fail(index, "registry", format!("`{registry}` is not HOST or HOST:PORT"));
            }
            if self.hosts.iter().take(index).any(|other| other.registry == host.registry) {
                return fail(index, "registry", format!("`{}` stands there twice", host.registry));
            }
            if host.plain_http && host.ca.is_some() {
                return fail(
                    index,
                    "ca",
                    "there is no certificate to check over plain HTTP; take one of the two away".into(),
                );
            }
            if let Some(mirror) = host.mirrors.iter().find(|mirror| mirror.contains("://") || mirror.is_empty()) {
                return fail(index, "mirrors", format!("`{mirror}` is not HOST[/PREFIX]"));
            }
        }
        Ok(())
    }

    /// How a registry is reached.
    pub(crate) fn host(&self, registry: &str) -> HostSettings {
        let known = self.hosts.iter().find(|host| host.registry == registry).cloned();
        known.unwrap_or_else(|| HostSettings {
            registry: registry.to_owned(),
            plain_http: is_this_machine(registry),
            ..HostSettings::default()
        })
    }

    /// Allows plain HTTP to a registry, or certificate authorities from a file, as command-line flags do.
    pub fn say(&mut self, registry: &str, plain_http: bool, ca: Option<&Path>) {
        if !plain_http && ca.is_none() {
            return;
        }
        let mut host = self.host(registry);
        self.hosts.retain(|other| other.registry != registry);
        host.plain_http = plain_http || host.plain_http && ca.is_none();
        host.ca = ca.map(Path::to_path_buf).or(host.ca);
        self.hosts.push(host);
    }
}

/// Whether the registry is on this machine, so that requests do not leave it.
fn is_this_machine(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_invalid_setting_is_named_by_its_place() {
        for (hosts, expected) in [
            (json!([{"registry": "https://r.io"}]), "hosts[0].registry"),
            (json!([{"registry": "r.io"}, {"registry": "r.io"}]), "hosts[1].registry: `r.io` stands there twice"),
            (json!([{"registry": "r.io", "plainHttp": true, "ca": "/x"}]), "hosts[0].ca"),
            (json!([{"registry": "r.io", "mirrors": ["http://m"]}]), "hosts[0].mirrors"),
        ] {
            let settings: RegistrySettings = serde_json::from_value(json!({"hosts": hosts})).unwrap();
            let error = settings.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(RegistrySettings::default().check().is_ok());
    }

    #[test]
    fn a_flag_adds_to_what_the_file_says() {
        let mut settings: RegistrySettings =
            serde_json::from_value(json!({"hosts": [{"registry": "r.io", "mirrors": ["m.io"]}]})).unwrap();
        settings.say("r.io", true, None);
        settings.say("s.io", false, None);
        assert_eq!(settings.hosts.len(), 1);
        let host = settings.host("r.io");
        assert!(host.plain_http && host.mirrors == ["m.io"]);
    }
}
