//! Runs `opa` in the version whose functions are listed.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = "1.22.0";

/// A command of `opa`: from `QOSM_OPA`, else from `make setup`, else from the path or from the folder of `go install`.
pub(crate) fn opa() -> Command {
    let home = env::home_dir().unwrap_or_default();
    let kept = home.join(format!(".cache/qosm/opa-{VERSION}/bin/opa"));
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join("opa")).chain([home.join("go/bin/opa")]);
    let programs = match env::var_os("QOSM_OPA") {
        Some(named) => vec![PathBuf::from(named)],
        None => [kept].into_iter().chain(found).collect(),
    };
    match programs.iter().find(|program| is_right(program)) {
        Some(program) => Command::new(program),
        None => panic!(
            "opa {VERSION} is needed to compare with: run `cargo xtask setup --for rego`, or name it in QOSM_OPA (looked at: {programs:?})"
        ),
    }
}

fn is_right(program: &Path) -> bool {
    let Ok(run) = Command::new(program).arg("version").output() else { return false };
    String::from_utf8_lossy(&run.stdout).contains(&format!("Version: {VERSION}"))
}
