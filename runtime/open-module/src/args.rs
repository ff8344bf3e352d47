//! Flags about registries and keys, to be flattened into a verb's arguments.

use std::path::PathBuf;

use clap::Args;

/// How registries are reached.
#[derive(Debug, Args)]
pub struct RegistryArgs {
    /// Configuration of registries (YAML): `hosts`, `credentials`, `verification`, `limits`, as under `registries` in the agent's file.
    /// Default: registries.yaml in ~/.config/qosm or /etc/qosm, if it exists.
    #[arg(long, env = "QOSM_REGISTRIES", value_name = "FILE")]
    pub registries: Option<PathBuf>,
    /// Reach the registry over plain HTTP. Not needed for registries on this machine.
    #[arg(long)]
    pub plain_http: bool,
    /// CA certificates (PEM) to trust for the registry, in addition to the system's.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Folder of the local store of artefacts. Default: ~/.cache/qosm/artifacts.
    #[arg(long, env = "QOSM_STORE", value_name = "DIR")]
    pub store: Option<PathBuf>,
}

/// Keys whose signatures count, in addition to those in the file of registries.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// Public key (PEM) that must have signed the artefact. May be repeated; one of the keys is enough.
    #[arg(long = "key", value_name = "FILE")]
    pub keys: Vec<PathBuf>,
    /// Require signatures of all keys.
    #[arg(long, requires = "keys")]
    pub all_keys: bool,
    /// Annotation that a signature must contain. May be repeated.
    #[arg(long = "signed", value_name = "KEY=VALUE", requires = "keys")]
    pub signed: Vec<String>,
}
