//! The registries: their configuration and command lines, and the files for their users.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::env::{Env, Locked};
use super::programs::Programs;
use super::tls;
use crate::command;
use crate::state_dir::StateDir;

/// A signing configuration without services.
pub(crate) const SIGNING_CONFIG: &str = "empty.json";
/// The folder with the `config.json` that holds the passwords.
pub(crate) const DOCKER_CONFIG: &str = "docker";
/// The folder with links to all programs, under their names.
pub(crate) const BIN: &str = "bin";

/// One registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instance {
    /// HTTP, without credentials.
    Plain,
    /// HTTP, with a password.
    Locked,
    /// HTTPS, with a password.
    Tls,
    /// HTTP, without credentials, with the referrers API.
    Referrers,
}

impl Instance {
    /// All registries.
    pub(crate) const ALL: [Self; 4] = [Self::Plain, Self::Locked, Self::Tls, Self::Referrers];

    /// Name of the registry: in its log and its record, and its key in `env.json`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Locked => "locked",
            Self::Tls => "tls",
            Self::Referrers => "referrers",
        }
    }

    /// Address of the registry.
    pub(crate) fn host(self, env: &Env) -> &str {
        match self {
            Self::Plain => &env.plain.host,
            Self::Locked => &env.locked.host,
            Self::Tls => &env.tls.locked.host,
            Self::Referrers => &env.referrers.host,
        }
    }

    /// An argument that identifies this folder's registry.
    pub(crate) fn mark(self, state: &StateDir) -> String {
        match self {
            Self::Plain | Self::Locked | Self::Tls => state.text(&self.file("json")),
            Self::Referrers => state.text(&format!("{BIN}/referrers")),
        }
    }

    /// The registry's command line.
    pub(crate) fn command(self, state: &StateDir, env: &Env, programs: &Programs) -> Command {
        match self {
            Self::Plain | Self::Locked | Self::Tls => {
                let mut registry = Command::new(&programs.registry);
                registry.arg("serve").arg(self.mark(state));
                registry
            }
            Self::Referrers => {
                let mut registry = Command::new(self.mark(state));
                registry.arg(self.host(env));
                registry
            }
        }
    }

    /// Writes the registry's configuration.
    ///
    /// # Errors
    ///
    /// When something cannot be made.
    pub(crate) fn configure(self, state: &StateDir, env: &Env, programs: &Programs) -> Result<()> {
        let (locked, with_tls) = match self {
            Self::Plain => (None, false),
            Self::Locked => (Some(&env.locked), false),
            Self::Tls => (Some(&env.tls.locked), true),
            Self::Referrers => return Ok(()),
        };
        let mut config = json!({
            "version": "0.1",
            "storage": {"filesystem": {"rootdirectory": state.text(self.name())}, "delete": {"enabled": true}},
            "http": {"addr": self.host(env)},
        });
        if let Some(locked) = locked {
            let file = self.file("htpasswd");
            state.write(&file, &hashed(programs, locked)?)?;
            config["auth"] = json!({"htpasswd": {"realm": "qosm-test", "path": state.text(&file)}});
        }
        if with_tls {
            tls::make(state)?;
            config["http"]["tls"] = json!({"certificate": state.text(tls::CERTIFICATE), "key": state.text(tls::KEY)});
        }
        // JSON is valid YAML.
        state.write(&self.file("json"), &format!("{config:#}\n"))
    }

    fn file(self, extension: &str) -> String {
        format!("{}.{extension}", self.name())
    }
}

/// Creates the files for programs that push, pull and sign.
///
/// # Errors
///
/// When something cannot be made.
pub(crate) fn equip(state: &StateDir, env: &Env, programs: &Programs) -> Result<()> {
    let bin = state.make(BIN)?;
    for (name, program) in programs.tools().chain([("referrers", programs.referrers.as_path())]) {
        link(program, &bin.join(name))?;
    }
    let signing = ["signing-config", "create", "--out"];
    command::output(Command::new(&programs.cosign).args(signing).arg(state.path(SIGNING_CONFIG)))?;
    // Check the generated configuration: it must have no services, whatever cosign's defaults become.
    let made = std::fs::read(state.path(SIGNING_CONFIG)).context("cosign wrote no signing configuration")?;
    let made: Value = serde_json::from_slice(&made).context("cosign's signing configuration is no JSON")?;
    anyhow::ensure!(made.get("rekorTlogUrls").is_none(), "cosign's new signing configuration names a log: {made}");
    let docker_config = state.make(DOCKER_CONFIG)?;
    for locked in [&env.locked, &env.tls.locked] {
        let mut login = Command::new(&programs.crane);
        login.args(["auth", "login", &locked.host, "--username", &locked.username, "--password", &locked.password]);
        command::output(login.env("DOCKER_CONFIG", &docker_config))?;
    }
    Ok(())
}

/// A line of an htpasswd file, with bcrypt, the only method that the registry supports.
fn hashed(programs: &Programs, locked: &Locked) -> Result<String> {
    command::output(Command::new(&programs.htpasswd).args(["-nbB", &locked.username, &locked.password]))
}

fn link(program: &Path, name: &Path) -> Result<()> {
    symlink(program, name).with_context(|| format!("{} cannot be made", name.display()))
}
