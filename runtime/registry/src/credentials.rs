//! Credentials for a registry. They are read for each pull, since they rotate.
#![expect(clippy::disallowed_methods, reason = "passwords lie where other tools and the kubelet put them")]

use std::fs::{self, File};
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use docker_credential::{CredentialRetrievalError, DockerCredential};
use oci_client::secrets::RegistryAuth;

use crate::error::RegistryError;

/// Docker Hub's credentials stand under its first address.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";
/// As deep as Kubernetes nests what it projects.
const FOLDERS_DEEP: usize = 3;

/// The identity for a registry, and its source.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) auth: RegistryAuth,
    /// For messages: `anonymous`, or the user and where the credentials stand.
    pub(crate) name: String,
}

/// Finds credentials: in the environment, the operator's files in their order, Docker's configuration with its helpers,
/// Podman's.
///
/// # Errors
///
/// [`RegistryError::Credentials`] for credentials that cannot be used: an anonymous request would hide that.
pub(crate) fn find(registry: &str, files: &[PathBuf]) -> Result<Identity, RegistryError> {
    let fail = |message: String| RegistryError::Credentials { registry: registry.to_owned(), message };
    if let Some(identity) = from_environment(registry) {
        return Ok(identity);
    }
    let server = if registry == "docker.io" { DOCKER_HUB } else { registry };
    let usual = usual_files();
    for file in files.iter().chain(usual.iter().filter(|path| path.exists())) {
        for path in config_files(file, FOLDERS_DEEP).map_err(|error| fail(format!("{}: {error}", file.display())))? {
            let opened = File::open(&path).map_err(|error| fail(format!("{}: {error}", path.display())))?;
            let found = docker_credential::get_credential_from_reader(BufReader::new(opened), server);
            if let Some(identity) =
                identity(found, &path).map_err(|message| fail(format!("{}: {message}", path.display())))?
            {
                return Ok(identity);
            }
        }
    }
    Ok(Identity { auth: RegistryAuth::Anonymous, name: "anonymous".to_owned() })
}

/// Only with the host: a password is not sent to whichever registry happens to be asked.
fn from_environment(registry: &str) -> Option<Identity> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (user, password) = (variable("QOSM_REGISTRY_USERNAME")?, variable("QOSM_REGISTRY_PASSWORD")?);
    (variable("QOSM_REGISTRY_HOST")? == registry)
        .then(|| Identity { name: format!("`{user}` of the environment"), auth: RegistryAuth::Basic(user, password) })
}

fn identity(
    found: Result<DockerCredential, CredentialRetrievalError>,
    path: &Path,
) -> Result<Option<Identity>, String> {
    use CredentialRetrievalError as E;
    match found {
        Ok(DockerCredential::UsernamePassword(user, password)) => {
            let name = format!("`{user}` of {}", path.display());
            Ok(Some(Identity { auth: RegistryAuth::Basic(user, password), name }))
        }
        Ok(DockerCredential::IdentityToken(_)) => {
            Err("an identity token cannot be used here; log in with a user and an access token instead".to_owned())
        }
        Err(E::NoCredentialConfigured) => Ok(None),
        Err(E::ConfigReadError) => Err("it is not a configuration of Docker's in JSON".to_owned()),
        Err(E::HelperFailure { helper, stdout, stderr }) => {
            // What helpers print when they know nothing is not agreed upon.
            if format!("{stdout}{stderr}").contains("not found") {
                return Ok(None);
            }
            Err(format!("the credential helper {helper} failed: {}", stderr.trim()))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Where Docker's and Podman's logins are kept, whether they are there or not.
pub(crate) fn usual_files() -> Vec<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = |path: &str| folder("HOME").map(|home| home.join(path));
    let docker = folder("DOCKER_CONFIG").or_else(|| home(".docker")).map(|folder| folder.join("config.json"));
    let podman = folder("REGISTRY_AUTH_FILE")
        .or_else(|| folder("XDG_RUNTIME_DIR").map(|folder| folder.join("containers/auth.json")));
    [docker, podman, home(".config/containers/auth.json")].into_iter().flatten().collect()
}

/// The files of a configured path.
fn config_files(path: &Path, deep: usize) -> std::io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut entries: Vec<_> =
        fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?.iter().map(fs::DirEntry::path).collect();
    entries.sort();
    let mut files = Vec::new();
    for entry in entries {
        let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_folder = match fs::metadata(&entry) {
            Ok(metadata) => metadata.is_dir(),
            // Replaced while it is read: Kubernetes swaps the folder that all of them lead to.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if is_folder && deep > 0 && !name.starts_with("..") {
            files.extend(config_files(&entry, deep - 1)?);
        } else if matches!(name, ".dockerconfigjson" | "config.json") {
            files.push(entry);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn the_first_file_that_knows_the_registry_counts() {
        let folder = tempfile::tempdir().unwrap();
        // "a:b" and "c:d" in base64.
        let one = config(folder.path(), "one.json", r#"{"auths":{"r.io":{"auth":"YTpi"}}}"#);
        config(
            folder.path(),
            "secrets/x/.dockerconfigjson",
            r#"{"auths":{"r.io":{"auth":"Yzpk"},"s.io":{"auth":"Yzpk"}}}"#,
        );
        let files = [one, folder.path().join("secrets")];
        let of = |registry: &str| find(registry, &files).map(|identity| identity.auth).unwrap();
        assert!(of("r.io") == RegistryAuth::Basic("a".into(), "b".into()));
        assert!(of("s.io") == RegistryAuth::Basic("c".into(), "d".into()));
        assert!(of("unknown.example") == RegistryAuth::Anonymous);
    }

    #[test]
    fn unusable_credentials_are_an_error_instead_of_an_anonymous_request() {
        let folder = tempfile::tempdir().unwrap();
        let token = config(folder.path(), "token.json", r#"{"auths":{"r.io":{"identitytoken":"x","auth":"YTpi"}}}"#);
        let broken = config(folder.path(), "broken.json", "{");
        let missing = folder.path().join("missing.json");
        for (file, variable) in [(token, "identity token"), (broken, "broken.json"), (missing, "missing.json")] {
            let error = find("r.io", &[file]).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(variable) && error.contains("r.io"), "{error}");
        }
    }
}
