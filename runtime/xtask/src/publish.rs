//! Publishes the default modules: pushes each to a registry under its version, with its source and revision, and signs it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command;
use crate::modules;
use crate::workspace::{Shipped, Workspace};

/// Where to publish.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Registry and prefix of the modules' names, such as `ghcr.io/qosm/policies`.
    #[arg(value_name = "REGISTRY[/PREFIX]")]
    registry: String,
    /// Private key to sign with. Default: nothing is signed.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Additional argument of `cosign sign`. May be repeated.
    #[arg(long = "cosign", value_name = "ARG", allow_hyphen_values = true)]
    cosign: Vec<String>,
    /// Additional argument of `qosm policy push`. May be repeated.
    #[arg(long = "push", value_name = "ARG", allow_hyphen_values = true)]
    push: Vec<String>,
    #[command(flatten)]
    pub(crate) programs: Shipped,
}

/// Builds and pushes the modules. The same commit gives the same digests, because the date is the commit's.
///
/// # Errors
///
/// If a module cannot be built, or the registry refuses it.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    crate::build(workspace)?;
    let revision = git(workspace, &["rev-parse", "HEAD"])?;
    let is_changed = !git(workspace, &["status", "--porcelain"])?.is_empty();
    if is_changed {
        eprintln!("warning: the working tree has changes; the revision is marked as `-dirty`");
    }
    let revision = if is_changed { format!("{revision}-dirty") } else { revision };
    let date = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(date) => date,
        Err(_) => git(workspace, &["log", "-1", "--format=%ct"])?,
    };
    let repository = env!("CARGO_PKG_REPOSITORY");
    for package in modules::names(workspace)? {
        command::heading(&format!("{package} to {}", args.registry));
        let file = workspace.modules().join(format!("{package}.wasm"));
        let inspected = json(Command::new(workspace.binary()).args(["policy", "inspect", "-o", "json"]).arg(&file))?;
        let version = inspected["version"].as_str().context("a module without a version")?;
        let reference = format!("{}/{package}:{version}", args.registry);
        let mut push = Command::new(workspace.binary());
        push.args(["policy", "push", "-o", "json"]).arg(&file).arg(&reference).env("SOURCE_DATE_EPOCH", &date);
        for (key, value) in [
            ("source", repository),
            ("revision", revision.as_str()),
            ("licenses", env!("CARGO_PKG_LICENSE")),
            ("documentation", &format!("{repository}/blob/main/policies/{package}/README.md")),
        ] {
            push.arg("--annotation").arg(format!("org.opencontainers.image.{key}={value}"));
        }
        let pushed = json(push.args(&args.push))?;
        let digest = pushed["digest"].as_str().context("a push without a digest")?;
        println!("    {reference}@{digest}");
        if let Some(key) = &args.key {
            let mut cosign = Command::new("cosign");
            cosign.args(["sign", "--yes", "--key"]).arg(key).args(&args.cosign);
            command::run(cosign.arg(format!("{}/{package}@{digest}", args.registry)))?;
        }
    }
    if args.key.is_none() {
        println!("nothing is signed: name a key with ARGS=\"--key cosign.key\"");
    }
    Ok(())
}

fn git(workspace: &Workspace, args: &[&str]) -> Result<String> {
    let said = command::output(Command::new("git").arg("-C").arg(workspace.root()).args(args))?;
    Ok(said.trim().to_owned())
}

fn json(command: &mut Command) -> Result<Value> {
    let said = command::output(command)?;
    match serde_json::from_str(&said) {
        Ok(value) => Ok(value),
        Err(error) => bail!("{command:?} printed no JSON: {error}"),
    }
}
