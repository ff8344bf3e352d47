//! Why there is no module.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::toolchain::TARGET;

/// A policy could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The folder holds no policy in a language that is known.
    #[error(
        "{} holds neither a Cargo.toml nor a go.mod nor a .rego file; begin a policy with `qosm policy new`, or name the module that another tool \
         built", folder.display()
    )]
    NoProject {
        /// The folder.
        folder: PathBuf,
    },
    /// It holds several.
    #[error(
        "{} holds more than one of Cargo.toml, go.mod and .rego files; a policy is written in one language, so give each its own folder",
        folder.display()
    )]
    TwoLanguages {
        /// The folder.
        folder: PathBuf,
    },
    /// The crate builds no C-style library.
    #[error("{} is no policy's: `[lib]` needs crate-type = [\"cdylib\", \"rlib\"]", manifest.display())]
    NoPolicy {
        /// Its Cargo.toml.
        manifest: PathBuf,
    },
    /// The manifest describes several packages and none of its own.
    #[error("{} is a workspace's; name the folder of one policy in it", manifest.display())]
    Workspace {
        /// The Cargo.toml.
        manifest: PathBuf,
    },
    /// There is no cargo.
    #[error("`{}` is not there: install Rust as https://rustup.rs says, then run `rustup target add {TARGET}`", program.display())]
    NoCargo {
        /// What was looked for.
        program: PathBuf,
    },
    /// No Rust here compiles to Wasm.
    #[error(
        "no Rust here compiles to {TARGET}: run `rustup target add {TARGET}`, or on Debian, as root, \
         `apt-get install --no-install-recommends rustc-web cargo-web rust-web-src lld-22`"
    )]
    NoTarget,
    /// There is no Go.
    #[error(
        "`go` is not there: install it from https://go.dev/dl, 1.25 or newer, and put its folder `bin` on the path"
    )]
    NoGo,
    /// There is no compiler of Rego.
    #[error(
        "`opa` is not there, which compiles Rego: run `go install github.com/open-policy-agent/opa@v1.22.0`, or put \
         https://openpolicyagent.org/downloads/v1.22.0/opa_linux_amd64_static on the path as `opa`"
    )]
    NoOpa,
    /// A tool cannot be started.
    #[error("`{line}` cannot be started")]
    Start {
        /// As a person would type it.
        line: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A tool failed; what it had to say it wrote to standard error.
    #[error("`{line}` failed ({status})")]
    Failed {
        /// As a person would type it.
        line: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// A tool that is asked for something failed.
    #[error("`{line}` failed ({status}): {said}")]
    Refused {
        /// As a person would type it.
        line: String,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote to standard error.
        said: String,
    },
    /// OPA does not compile it.
    #[error("`opa build` failed ({status}):\n{said}")]
    Rego {
        /// How it ended.
        status: ExitStatus,
        /// What OPA says, with file and line.
        said: String,
    },
    /// A tool answered something else than documented.
    #[error("`{line}` printed no JSON that is known")]
    Answer {
        /// As a person would type it.
        line: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A file or folder cannot be read or written.
    #[error("{} cannot be {action}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What was tried: `read`, `written`, `made`, `listed`.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// What was compiled is no component, and cannot be made one.
    #[error("policy `{policy}` makes no component")]
    Component {
        /// The policy.
        policy: String,
        /// What does not fit.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The bundle lacks what a policy has to have.
    #[error("{} is no policy's bundle: {problem}", bundle.display())]
    Bundle {
        /// The bundle.
        bundle: PathBuf,
        /// What is wrong, and the way out.
        problem: String,
    },
}
