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
    /// Create a policy: a project that builds, passes its tests and runs as it is.
    #[command(
        after_help = "Examples:\n  qosm policy new my-policy --lang rust\n  qosm policy new my-policy --lang rego --to policies/mine"
    )]
    New(NewArgs),
    /// Build a policy's module: a component from Rust, a bundle from Rego.
    #[command(
        after_help = "The module is target/NAME.wasm, or target/NAME.tar.gz, in the policy's folder. Messages of compilers go to standard \
                      error, with file and line.\n\nExample:\n  qosm policy build my-policy"
    )]
    Build(BuildArgs),
    /// Run a policy's tests: those of its own code, then its cases against the module.
    #[command(
        after_help = "For a module without its folder, only cases run: give their folder with --cases.\n\nExamples:\n  qosm policy test\n  \
                      qosm policy test my-policy follows-the-limit\n  \
                      qosm policy test module.wasm --cases tests/cases\n\nExit codes: 0 all tests pass; 1 a test fails; 2 wrong arguments or input."
    )]
    Test(TestArgs),
    /// Try a policy on a node from a file or a recording: show what it would set, and why. All interfaces that it imports are granted.
    #[command(
        after_help = "Examples:\n  qosm policy run --facts recordings/node.yaml\n  qosm policy run my-policy --recording node.jsonl -o json"
    )]
    Run(RunArgs),
    /// Measure time and executed instructions of an evaluation on synthetic nodes, beside those of the default modules.
    #[command(
        after_help = "Times are CPU time on this machine; fuel (about the number of Wasm instructions) is the same everywhere.\n\nExample:\n  qosm policy bench my-policy --containers 100,1000"
    )]
    Bench(BenchArgs),
    /// Print a policy's reference as Markdown: what it does, its fields, and what it may touch.
    #[command(after_help = "Example:\n  qosm policy doc my-policy > my-policy/REFERENCE.md")]
    Doc(DocArgs),
    /// Check a policy for mistakes that would trouble its operators.
    #[command(
        after_help = "Example:\n  qosm policy lint my-policy\n\nExit codes: 0 nothing but hints; 1 errors or warnings; 2 wrong arguments or input."
    )]
    Lint(LintArgs),
    /// Push a module to a registry, or into a folder or archive of artefacts.
    #[command(after_help = "The same module with the same labels gives the same artefact on any machine: its date is \
                            SOURCE_DATE_EPOCH, or 1970.\n\nExample:\n  \
                            qosm policy push my-burst.wasm registry.example.com/policies/my-burst:1.0.0")]
    Push(PushArgs),
    /// Write metadata into a module: version, authors, source, licence.
    #[command(
        disable_version_flag = true,
        after_help = "Example:\n  qosm policy annotate my-burst.wasm --licenses Apache-2.0 \
                            --source https://example.com/my-burst"
    )]
    Annotate(AnnotateArgs),
    /// Print the software bill of materials of a module, as a CycloneDX document.
    #[command(after_help = "Example:\n  qosm policy sbom my-burst.wasm > my-burst.cdx.json")]
    Sbom(SbomArgs),
    /// Demonstrate a policy on this machine.
    #[command(subcommand)]
    Demo(DemoCommand),
    /// Emulate resctrl, to try out policies for cache and memory bandwidth without the hardware.
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
    /// Compile a module from standard input. This program starts it as a short-lived child.
    #[command(hide = true)]
    CompileModule,
}

/// The language of a policy.
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
    /// Language of the policy.
    #[arg(long, value_enum)]
    pub(crate) lang: LanguageArg,
    /// Folder to create. Default: a folder of the policy's name in the working directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// Folder of the crate `qosm-sdk`, for a policy in Rust. Default: the project gets a copy of this version's crate.
    #[arg(long, value_name = "PATH")]
    pub(crate) sdk: Option<PathBuf>,
}

/// Which compiler to take.
#[derive(Debug, Args)]
pub(crate) struct ToolchainArgs {
    /// For policies in Rust: compiler for Wasm. Default: the first one that is installed.
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

/// A policy: a folder that is built first, or a module.
#[derive(Debug, Args)]
pub(crate) struct SubjectArgs {
    /// The policy's folder, which is built first; or a module: a file, an artefact, or the name of a default module.
    #[arg(default_value = ".", value_name = "DIR|MODULE")]
    pub(crate) subject: String,
    #[command(flatten)]
    pub(crate) toolchain: ToolchainArgs,
    /// Folder of the default modules.
    #[arg(long, env = "QOSM_MODULE_DIR", value_name = "DIR")]
    pub(crate) module_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    #[command(flatten)]
    pub(crate) subject: SubjectArgs,
    /// Run only tests and cases whose name contains this text.
    pub(crate) filter: Option<String>,
    /// Folder of the cases. Default: tests/cases in the policy's folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) cases: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) subject: SubjectArgs,
    /// File that describes a node, as for `qosm plan`: shows what would be written. `-` = standard input. Default: recordings/node.yaml in
    /// the policy's folder.
    #[arg(long, value_name = "FILE", conflicts_with = "recording")]
    pub(crate) facts: Option<PathBuf>,
    /// Recording, as made by `qosm record`: shows the decisions of each tick. `-` = standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) recording: Option<PathBuf>,
    /// The policy's own configuration, a JSON object. Default: the one that the file has for a policy of this name.
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
    /// Numbers of containers of the synthetic nodes.
    #[arg(long, value_name = "NUMBER,…", value_delimiter = ',', default_values_t = [10, 100, 1000],
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) containers: Vec<u32>,
    /// The policy's own configuration, a JSON object.
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(crate) config: String,
    /// Configuration of each pod, a JSON object as in its annotation. Default: one that fits the policy's schema.
    #[arg(long, value_name = "JSON")]
    pub(crate) pod_config: Option<String>,
    /// Do not measure the default modules.
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
    /// Folder of the cases. Default: tests/cases in the policy's folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) cases: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// The module's file.
    pub(crate) file: PathBuf,
    /// Destination: REGISTRY/REPOSITORY:TAG, oci-layout:FOLDER:TAG or oci-layout:FILE.tar:TAG.
    pub(crate) to: String,
    /// Additional annotation of the manifest. May be repeated.
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
    /// File to write. Default: the same file.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// Version, for other tools: qosm takes that of the policy's own description.
    #[arg(long)]
    pub(crate) version: Option<String>,
    /// Purpose in one line, for other tools: qosm takes that of the policy's own description.
    #[arg(long)]
    pub(crate) description: Option<String>,
    /// Contact details of the authors.
    #[arg(long)]
    pub(crate) authors: Option<String>,
    /// Licences, as an SPDX expression.
    #[arg(long)]
    pub(crate) licenses: Option<String>,
    /// URL of the source.
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// URL with more information.
    #[arg(long)]
    pub(crate) homepage: Option<String>,
    /// Revision of the source.
    #[arg(long)]
    pub(crate) revision: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SbomArgs {
    /// The module: a component's file, an artefact, or the name of a default module.
    pub(crate) module: String,
    /// Folder of the default modules.
    #[arg(long, env = "QOSM_MODULE_DIR", value_name = "DIR")]
    pub(crate) module_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}
