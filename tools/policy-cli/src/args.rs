//! The command line, and nothing else: one list of flags feeds help and completions.

mod emulation;

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use qosm_build::Way;
use qosm_open_module::RegistryArgs;
use qosm_terminal::OutputArgs;
use qosm_terminal::manual::ManualArgs;

pub(crate) use self::emulation::*;

/// Write policies, try them out, publish them. `qosm policy` runs this program.
#[derive(Debug, Parser)]
#[command(name = "qosm-policy", version, after_help = qosm_terminal::EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Begin a policy: a project that builds, passes its tests and runs as it is.
    #[command(
        after_help = "Examples:\n  qosm policy new my-policy --lang rust\n  qosm policy new my-policy --lang rego --to policies/mine"
    )]
    New(NewArgs),
    /// Build a policy's module: a component from Rust, a bundle from Rego.
    #[command(
        after_help = "The module is target/NAME.wasm, or target/NAME.tar.gz, in the policy's folder. What compilers say goes to standard \
                      error, with file and line.\n\nExample:\n  qosm policy build my-policy"
    )]
    Build(BuildArgs),
    /// Run a policy's tests: those of its own code, then its cases against the module.
    #[command(
        after_help = "Of a module alone the cases are played: name them with --cases.\n\nExamples:\n  qosm policy test\n  \
                      qosm policy test my-policy follows-the-limit\n  \
                      qosm policy test module.wasm --cases tests/cases\n\nExit codes: 0 all hold; 1 one does not; 2 it was asked wrongly."
    )]
    Test(TestArgs),
    /// Try a policy on a node in a file, or on a recorded one: what it would set, and why. It is granted all that it imports.
    #[command(
        after_help = "Examples:\n  qosm policy run --facts recordings/node.yaml\n  qosm policy run my-policy --recording node.jsonl -o json"
    )]
    Run(RunArgs),
    /// Measure what an evaluation takes on made-up nodes, beside the default modules: time, and instructions executed.
    #[command(
        after_help = "Times are CPU time on this machine; fuel (Wasm instructions, about) is the same everywhere.\n\nExample:\n  qosm policy bench my-policy --containers 100,1000"
    )]
    Bench(BenchArgs),
    /// Print what a policy is, takes, and may touch, as Markdown.
    #[command(after_help = "Example:\n  qosm policy doc my-policy > my-policy/REFERENCE.md")]
    Doc(DocArgs),
    /// Show what in a policy will trouble its operators.
    #[command(
        after_help = "Example:\n  qosm policy lint my-policy\n\nExit codes: 0 nothing but hints; 1 errors or warnings; 2 it was asked wrongly."
    )]
    Lint(LintArgs),
    /// Push a module to a registry, or into a folder or archive of artefacts.
    #[command(after_help = "The same module with the same labels is the same artefact, on any machine: its date is \
                            SOURCE_DATE_EPOCH, or 1970.\n\nExample:\n  \
                            qosm policy push my-burst.wasm registry.example.com/policies/my-burst:1.0.0")]
    Push(PushArgs),
    /// Write into a module who made it, from what, and under which licence.
    #[command(
        disable_version_flag = true,
        after_help = "Example:\n  qosm policy annotate my-burst.wasm --version 1.0.0 --licenses Apache-2.0 \
                            --source https://example.com/my-burst"
    )]
    Annotate(AnnotateArgs),
    /// Print what a module was made of, as a CycloneDX document.
    #[command(after_help = "Example:\n  qosm policy sbom my-burst.wasm > my-burst.cdx.json")]
    Sbom(SbomArgs),
    /// Show what a policy does, on this machine.
    #[command(subcommand)]
    Demo(DemoCommand),
    /// Try out policies for the cache and the memory bandwidth without the hardware.
    #[command(subcommand)]
    Resctrl(ResctrlCommand),
    /// Print shell completions.
    #[command(after_help = "Example:\n  qosm-policy completions bash > /etc/bash_completion.d/qosm-policy")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print a reference of all verbs, or write pages for `man`.
    #[command(hide = true)]
    Manual(ManualArgs),
    /// Compile a module from standard input: what this program starts as a short-lived child.
    #[command(hide = true)]
    CompileModule,
}

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

#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// The module's file.
    pub(crate) file: PathBuf,
    /// Where to: REGISTRY/REPOSITORY:TAG, oci-layout:FOLDER:TAG, oci-layout:FILE.tar:TAG.
    pub(crate) to: String,
    /// A further annotation of the manifest.
    #[arg(long = "annotation", value_name = "KEY=VALUE")]
    pub(crate) annotations: Vec<String>,
    /// Push it even if this version of qosm could not run it.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AnnotateArgs {
    /// The module's file.
    pub(crate) file: PathBuf,
    /// The file to write. Not said: the same one.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// Its version.
    #[arg(long)]
    pub(crate) version: Option<String>,
    /// What it is for, in a line.
    #[arg(long)]
    pub(crate) description: Option<String>,
    /// Whom to turn to.
    #[arg(long)]
    pub(crate) authors: Option<String>,
    /// Its licences, as an SPDX expression.
    #[arg(long)]
    pub(crate) licenses: Option<String>,
    /// Where its source is: a URL.
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// Where more is to be read: a URL.
    #[arg(long)]
    pub(crate) homepage: Option<String>,
    /// The source's revision.
    #[arg(long)]
    pub(crate) revision: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SbomArgs {
    /// A component's file, an artefact, or the name of a default module.
    pub(crate) module: String,
    /// Where the default modules are.
    #[arg(long, env = "QOSM_MODULE_DIR", value_name = "DIR")]
    pub(crate) module_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}
