//! Reads or pulls the module that a command line names, and writes modules to files.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use qosm_registry::{ArtifactInfo, Location, Pulled, Verification};
use qosm_terminal::block_on;

use crate::args::RegistryArgs;
use crate::default_dir;
use crate::progress::Bars;
use crate::registries::{open_to_all, store};

/// Metadata of a pulled artefact.
pub struct Artefact {
    /// The registry's information about it.
    pub info: ArtifactInfo,
    /// The result of verifying its signatures.
    pub verification: Verification,
}

/// Reads the module that `text` names: a file (also as `file:///PATH`), an artefact (verified or not), or a default module (also as
/// `builtin:NAME`). Returns its place, its bytes, and the artefact's metadata if it is one.
///
/// # Errors
///
/// If nothing of that name can be read or pulled.
pub fn module(
    text: &str,
    module_dir: Option<&Path>,
    args: &RegistryArgs,
) -> anyhow::Result<(String, Vec<u8>, Option<Artefact>)> {
    let path = PathBuf::from(text);
    let default_module = |name: &str| default_dir(module_dir).join(format!("{name}.wasm"));
    if let Some(path) = text.strip_prefix("file://") {
        return file(Path::new(path));
    }
    if let Some(name) = text.strip_prefix("builtin:") {
        return file(&default_module(name));
    }
    let default = default_module(text);
    let meant = text.parse::<Location>();
    let path = match (path.exists(), default.exists(), meant) {
        (true, ..) => path,
        (false, true, _) => default,
        (false, false, Ok(location)) => {
            let store = store(args, &[&location])?;
            let open = open_to_all(args, &[&location])?;
            return block_on(async {
                let info = open.inspect(&location).await?;
                // Pinned to the digest, since a tag may move between the requests.
                let pinned = location.pinned(info.digest);
                let verification = store.verify(&pinned, None).await?;
                let Pulled { module, .. } = open.pull(&pinned, None, false, &mut Bars::default()).await?;
                Ok((location.to_string(), module, Some(Artefact { info, verification })))
            });
        }
        (false, false, Err(error)) => {
            let folder = default.display();
            bail!("no file `{text}` and no default module of that name ({folder}); as an artefact: {error}")
        }
    };
    file(&path)
}

#[expect(clippy::disallowed_methods, reason = "a command reads and writes the files that were typed")]
fn file(path: &Path) -> anyhow::Result<(String, Vec<u8>, Option<Artefact>)> {
    let wasm = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok((path.display().to_string(), wasm, None))
}

/// Writes a module's file atomically, with mode 0644.
///
/// # Errors
///
/// If the temporary file beside it cannot be written or renamed.
#[expect(clippy::disallowed_methods, reason = "a command reads and writes the files that were typed")]
pub fn write(to: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(file.path(), permissions)?;
    file.persist(to)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_named_as_in_a_policy_module_too() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cpu-burst.wasm");
        std::fs::write(&file, "wasm").unwrap();
        let args = RegistryArgs { registries: None, plain_http: false, ca: None, store: None };
        let shown = file.display().to_string();
        for text in [shown.clone(), format!("file://{shown}"), "cpu-burst".to_owned(), "builtin:cpu-burst".to_owned()] {
            let (place, wasm, artefact) = module(&text, Some(folder.path()), &args).unwrap();
            assert_eq!((place, wasm, artefact.is_none()), (shown.clone(), b"wasm".to_vec(), true), "{text}");
        }
        let error = module("builtin:other", Some(folder.path()), &args).err().unwrap().to_string();
        assert!(error.contains("other.wasm"), "{error}");
    }
}
