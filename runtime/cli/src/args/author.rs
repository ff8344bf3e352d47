//! Verbs that another program runs: their names and purposes, so that help and completions list them.

use std::ffi::OsString;

use clap::{Args, Subcommand};

/// Help text below the verbs of `qosm policy`.
pub(crate) const BY_AUTHORS: &str = "new, build, test, run, bench, doc, lint, push, annotate and sbom are run by the program \
     `qosm-policy`, beside qosm or on the PATH; the other verbs need only qosm.";

/// The arguments of a verb for authors, handed on to `qosm-policy` as they were typed, `--help` included.
#[derive(Debug, Args)]
pub(crate) struct Author {
    /// Arguments of `qosm-policy`; --help lists them.
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DemoCommand {
    /// Run two pods on an emulated resctrl: first a batch job takes cache and memory bandwidth from a web server, then the policy `llc-mba`
    /// limits it to its own part, then everything is restored. Needs root.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Resctrl(Author),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ResctrlCommand {
    /// Mount an emulated resctrl until interrupted: it refuses what the kernel refuses, with the same messages, and limits no process.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Emulate(Author),
}
