//! The flag `-o`.

use clap::{Args, ValueEnum};

/// The form in which a command prints its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// For scripts.
    Json,
}

/// The flag by itself, to be flattened into a verb's arguments.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}
