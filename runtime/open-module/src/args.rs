//! Flags about registries and keys, to be flattened into a verb's arguments.

use std::path::PathBuf;

use clap::Args;

/// How registries are reached.
#[derive(Debug, Args)]
pub struct RegistryArgs {
    /// What is known about registries (YAML): `hosts`, `credentials`, `verification`, `limits`, as under `registries` in the agent's
    /// own file. Not said: registries.yaml in ~/.config/qosm or /etc/qosm, if it is there.
    #[arg(long, env = "QOSM_REGISTRIES", value_name = "FILE")]
    pub registries: Option<PathBuf>,
    /// Reach the registry over plain HTTP. Not needed for one on this machine.
    #[arg(long)]
    pub plain_http: bool,
    /// Certificates (PEM) that may vouch for the registry, beside the system's.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Where artefacts are kept. Not said: ~/.cache/qosm/artifacts.
    #[arg(long, env = "QOSM_STORE", value_name = "DIR")]
    pub store: Option<PathBuf>,
}

/// Whose signatures count, beside what the registries' file says.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// A public key (PEM) that must have signed it; of several, one is enough.
    #[arg(long = "key", value_name = "FILE")]
    pub keys: Vec<PathBuf>,
    /// Each of the keys must have signed it.
    #[arg(long, requires = "keys")]
    pub all_keys: bool,
    /// An annotation that must have been signed with it.
    #[arg(long = "signed", value_name = "KEY=VALUE", requires = "keys")]
    pub signed: Vec<String>,
}
