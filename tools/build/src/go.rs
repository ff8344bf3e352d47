//! Policies in Go: compiled by the standard Go toolchain, and converted to a component that needs no WASI.

use std::path::{Path, PathBuf};
use std::process::Command;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::cargo::{output, run};
use crate::component::{checked, wrong};
use crate::error::BuildError;

/// The contract; the module imports the parts that its code calls.
const CONTRACT: &str = include_str!("../../../sdk/wit/policy.wit");
/// Stubs for the WASI functions that Go's runtime imports.
const NO_WASI: &str = include_str!("../../../sdk/go/wasi-none.wat");
/// Name of the module under which Go imports WASI.
const WASI: &str = "wasi_snapshot_preview1";

/// Where Go is usually installed when it is not on the `PATH`.
const USUAL: &str = "/usr/local/go/bin/go";

/// A policy's Go module.
#[derive(Clone, Debug)]
pub struct Go {
    name: String,
}

impl Go {
    pub(crate) fn open(folder: &Path) -> Result<Self, BuildError> {
        let path = output(go(folder).args(["list", "-m"]))?;
        let name = path.trim().rsplit('/').next().unwrap_or_default().to_owned();
        Ok(Self { name })
    }

    /// The last part of the module's path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `go test` in the policy's folder, with its output on standard error; only tests whose name contains `filter`.
    ///
    /// # Errors
    ///
    /// [`BuildError::Failed`] if a test fails or does not compile.
    pub fn test(&self, folder: &Path, filter: Option<&str>) -> Result<(), BuildError> {
        let mut command = go(folder);
        command.arg("test");
        if let Some(filter) = filter {
            command.args(["-run", filter]);
        }
        run(command.arg("./..."))
    }

    /// Compiles the module to `core`, and returns its component. The compiler's output goes to standard error.
    pub(crate) fn build(&self, folder: &Path, core: &Path) -> Result<Vec<u8>, BuildError> {
        let mut command = go(folder);
        command.env("GOOS", "wasip1").env("GOARCH", "wasm");
        // Leave out paths and the state of the checkout, so that the same source gives the same module on every machine.
        command.args(["build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false"]);
        // The allocator of the bindings runs before Go's own is ready, so it links to the runtime's internal one, which `-checklinkname=0`
        // permits.
        command.args(["-ldflags=-s -w -checklinkname=0", "-o"]).arg(core).arg(".");
        run(&mut command)?;
        let bytes = std::fs::read(core);
        let bytes = bytes.map_err(|source| BuildError::File { path: core.to_path_buf(), action: "read", source })?;
        self.component(bytes)
    }

    fn component(&self, mut core: Vec<u8>) -> Result<Vec<u8>, BuildError> {
        let mut resolve = Resolve::default();
        let world = resolve.push_str("policy.wit", CONTRACT).and_then(|package| resolve.select_world(&[package], None));
        let world = world.map_err(|error| wrong(&self.name, error.into()))?;
        let wasi = wat::parse_str(NO_WASI).map_err(|error| wrong(&self.name, error.into()))?;
        let mut encode = || {
            embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8)?;
            ComponentEncoder::default().validate(true).module(&core)?.adapter(WASI, &wasi)?.encode()
        };
        let component = encode().map_err(|error| wrong(&self.name, error.into()))?;
        checked(&self.name, component, "does an `init` function hand the policy to `qosm.Export`?")
    }
}

/// A Go command in a folder. By default it builds for this machine and without cgo.
fn go(folder: &Path) -> Command {
    let usual = || Some(PathBuf::from(USUAL)).filter(|go| go.is_file());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).any(|folder| folder.join("go").is_file());
    let program = if on_path { None } else { usual() };
    let mut go = Command::new(program.unwrap_or_else(|| "go".into()));
    go.current_dir(folder).env("CGO_ENABLED", "0").env_remove("GOOS").env_remove("GOARCH");
    go
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core module that imports WASI, as Go's runtime does, and is no policy.
    const ASKS: &str = r#"(module
        (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (func (export "_initialize")))"#;

    #[test]
    fn a_module_that_exports_nothing_of_the_contract_is_refused() {
        let go = Go { name: "mine".into() };
        let error = go.component(wat::parse_str(ASKS).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "policy `mine` makes no component");
    }

    #[test]
    fn what_stands_in_for_wasi_imports_nothing_but_the_memory() {
        let adapter = wat::parse_str(NO_WASI).unwrap();
        let imports = NO_WASI.lines().filter(|line| line.trim_start().starts_with("(import")).count();
        assert_eq!(imports, 1);
        assert!(adapter.len() < 4096, "{} bytes", adapter.len());
    }
}
