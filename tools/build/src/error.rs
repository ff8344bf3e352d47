//! Errors of a build.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::toolchain::TARGET;

/// Why a policy could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The folder holds no policy in a supported language.
    #[error(
        "{} holds neither a Cargo.toml nor a go.mod nor a .rego file; begin a policy with `qosm policy new`, or name the module that another tool \
         built", folder.display()
    )]
    NoProject {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder holds policies in several languages.
    #[error(
        "{} holds more than one of Cargo.toml, go.mod and .rego files; a policy is written in one language, so give each its own folder",
        folder.display()
    )]
    TwoLanguages {
        /// The folder.
        folder: PathBuf,
    },
    /// The crate builds no `cdylib`.
    #[error("{} is no policy's: `[lib]` needs crate-type = [\"cdylib\", \"rlib\"]", manifest.display())]
    NoPolicy {
        /// The crate's Cargo.toml.
        manifest: PathBuf,
    },
    /// The manifest is a workspace's and has no package of its own.
    #[error("{} is a workspace's; name the folder of one policy in it", manifest.display())]
    Workspace {
        /// The workspace's Cargo.toml.
        manifest: PathBuf,
    },
    /// Cargo is not installed.
    #[error("`{}` is not there: install Rust as https://rustup.rs says, then run `rustup target add {TARGET}`", program.display())]
    NoCargo {
        /// The program that was looked for.
        program: PathBuf,
    },
    /// No installed Rust compiles to Wasm.
    #[error(
        "no Rust here compiles to {TARGET}: run `rustup target add {TARGET}`, or on Debian, as root, \
         `apt-get install --no-install-recommends rustc-web cargo-web rust-web-src lld-22`"
    )]
    NoTarget,
    /// Go is not installed.
    #[error(
        "`go` is not there: install it from https://go.dev/dl, 1.25 or newer, and put its folder `bin` on the path"
    )]
    NoGo,
    /// The Rego compiler, OPA, is not installed.
    #[error(
        "`opa` is not there, which compiles Rego: run `go install github.com/open-policy-agent/opa@v1.22.0`, or put \
         https://openpolicyagent.org/downloads/v1.22.0/opa_linux_amd64_static on the path as `opa`"
    )]
    NoOpa,
    /// A tool could not be started.
    #[error("`{line}` cannot be started")]
    Start {
        /// The command, as a user types it.
        line: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A tool failed and wrote its messages to standard error.
    #[error("`{line}` failed ({status})")]
    Failed {
        /// The command, as a user types it.
        line: String,
        /// Exit status of the tool.
        status: ExitStatus,
    },
    /// A tool whose output is read failed.
    #[error("`{line}` failed ({status}): {said}")]
    Refused {
        /// The command, as a user types it.
        line: String,
        /// Exit status of the tool.
        status: ExitStatus,
        /// What the tool printed, usually to standard error.
        said: String,
    },
    /// OPA could not compile the policy.
    #[error("`opa build` failed ({status}):\n{said}")]
    Rego {
        /// Exit status of OPA.
        status: ExitStatus,
        /// OPA's messages, with file and line.
        said: String,
    },
    /// The output of a tool has an unknown format.
    #[error("`{line}` printed no JSON that is known")]
    Answer {
        /// The command, as a user types it.
        line: String,
        /// Why the output cannot be parsed.
        source: serde_json::Error,
    },
    /// A file or folder cannot be read or written.
    #[error("{} cannot be {action}", path.display())]
    File {
        /// Path of the file or folder.
        path: PathBuf,
        /// The action that failed: `read`, `written`, `made`, `listed`.
        action: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The compiled module is no component and cannot be converted to one.
    #[error("policy `{policy}` makes no component")]
    Component {
        /// Name of the policy.
        policy: String,
        /// Why it cannot be converted.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The bundle lacks something that a policy needs.
    #[error("{} is no policy's bundle: {problem}", bundle.display())]
    Bundle {
        /// Path of the bundle.
        bundle: PathBuf,
        /// What is missing, and how to fix it.
        problem: String,
    },
}
