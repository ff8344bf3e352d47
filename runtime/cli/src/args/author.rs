//! Arguments of those verbs of `qosm policy` with which policies are written.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use qosm_build::Way;

use super::{OutputArgs, RegistryArgs};

/// What a policy is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LanguageArg {
    /// A crate with `qosm-sdk`.
    Rust,
    /// Modules for OPA.
    Rego,
}

#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// The policy's name: lower-case letters, digits and inner dashes.
    pub(crate) name: String,
    /// What it is written in.
    #[arg(long, value_enum)]
    pub(crate) lang: LanguageArg,
    /// The folder to make. Not said: one of that name, here.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// The folder of the crate `qosm-sdk`, for a policy in Rust. Not said: the project gets a copy of this version's.
    #[arg(long, value_name = "PATH")]
    pub(crate) sdk: Option<PathBuf>,
}

/// Which compiler to take.
#[derive(Debug, Args)]
pub(crate) struct ToolchainArgs {
    /// In Rust: which compiler for Wasm to take. Not said: the first that is there.
    #[arg(long, value_parser = PossibleValuesParser::new(Way::WORDS).try_map(|word| word.parse::<Way>()))]
    pub(crate) toolchain: Option<Way>,
}

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// The policy's folder.
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) toolchain: ToolchainArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// A policy as it is worked on: a folder that is built first, or a module.
#[derive(Debug, Args)]
pub(crate) struct SubjectArgs {
    /// The policy's folder, which is built first; or a module: a file, an artefact, the name of a default one.
    #[arg(default_value = ".", value_name = "DIR|MODULE")]
    pub(crate) subject: String,
    #[command(flatten)]
    pub(crate) toolchain: ToolchainArgs,
    /// Where the default modules are.
    #[arg(long, env = "QOSM_MODULE_DIR", value_name = "DIR")]
    pub(crate) module_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    #[command(flatten)]
    pub(crate) subject: SubjectArgs,
    /// Only tests and cases with this in their name.
    pub(crate) filter: Option<String>,
    /// Where the cases are. Not said: tests/cases in the policy's folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) cases: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) subject: SubjectArgs,
    /// A node in a file, as `qosm plan` takes it: what would be written? `-` = standard input. Not said: recordings/node.yaml in the
    /// policy's folder.
    #[arg(long, value_name = "FILE", conflicts_with = "recording")]
    pub(crate) facts: Option<PathBuf>,
    /// A recording, as `qosm record` makes it: what is decided at each tick? `-` = standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) recording: Option<PathBuf>,
    /// The policy's own configuration, a JSON object. Not said: what the file has for a policy of this name.
    #[arg(long, value_name = "JSON")]
    pub(crate) config: Option<String>,
    /// Write the `input` of each evaluation of a policy in Rego to a folder, as 1.json, 2.json, …: for `opa eval --input`.
    #[arg(long, value_name = "DIR")]
    pub(crate) inputs: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) subject: SubjectArgs,
    /// How many containers the made-up nodes have.
    #[arg(long, value_name = "NUMBER,…", value_delimiter = ',', default_values_t = [10, 100, 1000],
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) containers: Vec<u32>,
    /// The policy's own configuration, a JSON object.
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(crate) config: String,
    /// What each pod asks for, a JSON object as in its annotation. Not said: something that fits the policy's schema.
    #[arg(long, value_name = "JSON")]
    pub(crate) pod_config: Option<String>,
    /// Leave the default modules out.
    #[arg(long)]
    pub(crate) alone: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DocArgs {
    #[command(flatten)]
    pub(crate) subject: SubjectArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LintArgs {
    #[command(flatten)]
    pub(crate) subject: SubjectArgs,
    /// Where the cases are. Not said: tests/cases in the policy's folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) cases: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
