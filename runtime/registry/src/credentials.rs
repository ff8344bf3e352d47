//! Credentials for a repository. They are read at each pull, because they rotate.
//!
//! The keys of a file mean what they mean to the kubelet for pull secrets (Kubernetes, "Images", "Interpretation of config.json") and in
//! containers-auth.json(5): a host, optionally with a path of repositories, or a pattern of hosts; the most specific key counts.
#![expect(clippy::disallowed_methods, reason = "passwords lie where other tools and the kubelet put them")]

mod key;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use docker_credential::{CredentialRetrievalError, DockerCredential};
use oci_client::secrets::RegistryAuth;
use serde::Deserialize;
use serde::de::IgnoredAny;

use self::key::{Key, Rank};
use crate::error::RegistryError;
use crate::reference::Reference;

/// The key of Docker Hub's credentials: its first address.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";
/// Maximum depth of subfolders: as deep as Kubernetes nests projected volumes.
const FOLDERS_DEEP: usize = 3;

/// Credentials for a repository, and their source.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) auth: RegistryAuth,
    /// For messages: `anonymous`, or the user and the source of the credentials.
    pub(crate) name: String,
}

/// The keys of a file. `docker_credential` looks up the credentials of a key.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Keys {
    auths: Option<BTreeMap<String, IgnoredAny>>,
    cred_helpers: Option<BTreeMap<String, String>>,
    creds_store: Option<String>,
}

/// A key that may have credentials for a repository.
struct Candidate {
    rank: Rank,
    key: String,
    /// The credential helper; `None` if the file itself has the credentials.
    helper: Option<String>,
    file: usize,
}

/// Finds credentials: first in the environment; then in the operator's files, where the most specific key counts, and of equal
/// keys that of the first file; then in Docker's configuration with its helpers; then in Podman's.
///
/// # Errors
///
/// [`RegistryError::Credentials`] for unusable credentials: an anonymous request instead would hide the fault.
pub(crate) fn find(of: &Reference, files: &[PathBuf]) -> Result<Identity, RegistryError> {
    if let Some(identity) = from_environment(of.registry()) {
        return Ok(identity);
    }
    let usual = usual_files();
    let usual = usual.iter().filter(|path| path.exists()).map(std::slice::from_ref);
    for group in [files].into_iter().chain(usual) {
        let found = in_files(of, group);
        let fail = |message: String| RegistryError::Credentials { registry: of.registry().to_owned(), message };
        if let Some(identity) = found.map_err(fail)? {
            return Ok(identity);
        }
    }
    Ok(Identity { auth: RegistryAuth::Anonymous, name: "anonymous".to_owned() })
}

fn in_files(of: &Reference, files: &[PathBuf]) -> Result<Option<Identity>, String> {
    let mut read = Vec::new();
    for file in files {
        for path in config_files(file, FOLDERS_DEEP).map_err(|error| format!("{}: {error}", file.display()))? {
            let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            read.push((path, text));
        }
    }
    let mut candidates = Vec::new();
    for (file, (path, text)) in read.iter().enumerate() {
        let keys: Keys = serde_json::from_slice(text)
            .map_err(|_| format!("{}: it is not a configuration of Docker's in JSON", path.display()))?;
        candidates.extend(candidates_of(of, keys).into_iter().map(|candidate| Candidate { file, ..candidate }));
    }
    // A stable sort: of equal keys, the first file's stays first.
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.rank));
    for Candidate { key, helper, file, .. } in candidates {
        let (path, text) = &read[file];
        let found = docker_credential::get_credential_from_reader(text.as_slice(), &key);
        let found = identity(found, helper.as_deref(), path);
        if let Some(identity) = found.map_err(|message| format!("{}: {message}", path.display()))? {
            return Ok(Some(identity));
        }
    }
    Ok(None)
}

fn candidates_of(of: &Reference, Keys { auths, cred_helpers, creds_store }: Keys) -> Vec<Candidate> {
    let ranked = |key: String, helper| {
        let rank = Key::parse(&key)?.rank(of)?;
        Some(Candidate { rank, key, helper, file: 0 })
    };
    let helpers = cred_helpers.unwrap_or_default();
    let mut candidates: Vec<_> = helpers.into_iter().filter_map(|(key, helper)| ranked(key, Some(helper))).collect();
    for key in auths.unwrap_or_default().into_keys() {
        candidates.extend(ranked(key, creds_store.clone()));
    }
    if creds_store.is_some() {
        let server = if of.registry() == "docker.io" { DOCKER_HUB } else { of.registry() };
        candidates.extend(ranked(server.to_owned(), creds_store));
    }
    candidates
}

/// Credentials of the environment, only for the host that `QOSM_REGISTRY_HOST` names: a password must not go to another registry.
fn from_environment(registry: &str) -> Option<Identity> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (user, password) = (variable("QOSM_REGISTRY_USERNAME")?, variable("QOSM_REGISTRY_PASSWORD")?);
    (variable("QOSM_REGISTRY_HOST")? == registry)
        .then(|| Identity { name: format!("`{user}` of the environment"), auth: RegistryAuth::Basic(user, password) })
}

fn identity(
    found: Result<DockerCredential, CredentialRetrievalError>,
    helper: Option<&str>,
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
            // Helpers have no agreed message for missing credentials.
            if format!("{stdout}{stderr}").contains("not found") {
                return Ok(None);
            }
            Err(format!("the credential helper {helper} failed: {}", stderr.trim()))
        }
        Err(E::HelperCommunicationError | E::MalformedHelperResponse) if helper.is_some() => Err(format!(
            "the credential helper docker-credential-{} is not there or does not answer as one; install it, or take it out of the file",
            helper.unwrap_or_default()
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// Docker's and Podman's credential files, whether or not they exist.
pub(crate) fn usual_files() -> Vec<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = |path: &str| folder("HOME").map(|home| home.join(path));
    let docker = folder("DOCKER_CONFIG").or_else(|| home(".docker")).map(|folder| folder.join("config.json"));
    let podman = folder("REGISTRY_AUTH_FILE")
        .or_else(|| folder("XDG_RUNTIME_DIR").map(|folder| folder.join("containers/auth.json")));
    [docker, podman, home(".config/containers/auth.json")].into_iter().flatten().collect()
}

/// The file at a configured path, or the credential files in that folder and its subfolders.
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
            // Replaced in the meantime: Kubernetes swaps the folder that all links lead to.
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

    fn of(reference: &str, files: &[PathBuf]) -> Result<RegistryAuth, String> {
        find(&reference.parse().unwrap(), files).map(|identity| identity.auth).map_err(|error| error.to_string())
    }

    fn account(name: &str) -> RegistryAuth {
        RegistryAuth::Basic(name.to_owned(), "p".to_owned())
    }

    /// A file with these keys and users.
    fn auths(folder: &Path, name: &str, users: &[(&str, &str)]) -> PathBuf {
        use base64::Engine as _;
        let encode = |user: &str| base64::engine::general_purpose::STANDARD.encode(format!("{user}:p"));
        let auths: BTreeMap<_, _> =
            users.iter().map(|(key, user)| (*key, serde_json::json!({"auth": encode(user)}))).collect();
        config(folder, name, &serde_json::json!({"auths": auths}).to_string())
    }

    #[test]
    fn the_first_file_that_knows_the_registry_counts() {
        let folder = tempfile::tempdir().unwrap();
        let one = auths(folder.path(), "one.json", &[("r.io", "a")]);
        auths(folder.path(), "secrets/x/.dockerconfigjson", &[("r.io", "c"), ("s.io", "c")]);
        let files = [one, folder.path().join("secrets")];
        assert!(of("r.io/x:1", &files) == Ok(account("a")));
        assert!(of("s.io/x:1", &files) == Ok(account("c")));
        assert!(of("unknown.example/x:1", &files) == Ok(RegistryAuth::Anonymous));
    }

    #[test]
    fn the_most_specific_key_counts_whichever_file_it_is_in() {
        let folder = tempfile::tempdir().unwrap();
        let wide = auths(folder.path(), "wide.json", &[("*.example.com", "any"), ("r.example.com", "host")]);
        let teams = [("r.example.com/team", "team"), ("https://r.example.com/v2/team/robot/", "robot")];
        let teams = auths(folder.path(), "teams.json", &teams);
        let files = [wide, teams];
        for (reference, user) in [
            ("r.example.com/team/robot:1", "robot"),
            ("r.example.com/team/robot/deep:1", "robot"),
            ("r.example.com/team/robots:1", "team"),
            ("r.example.com/teams/x:1", "host"),
            ("other.example.com/team/robot:1", "any"),
        ] {
            assert!(of(reference, &files) == Ok(account(user)), "{reference}");
        }
    }

    #[test]
    fn of_two_equal_keys_the_first_files_counts() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["one", "two"].map(|name| auths(folder.path(), name, &[("r.io/a", name), ("r.io/b", name)]));
        assert!(of("r.io/a:1", &files) == Ok(account("one")));
        let same = auths(folder.path(), "same", &[("r.*.io", "later"), ("*.x.io", "first")]);
        assert!(of("r.x.io/a:1", &[same]) == Ok(account("first")));
    }

    #[test]
    fn a_helper_that_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for text in [
            r#"{"credsStore":"qosm-nowhere"}"#,
            r#"{"credHelpers":{"r.io":"qosm-nowhere"}}"#,
            r#"{"auths":{"r.io":{}},"credsStore":"qosm-nowhere"}"#,
        ] {
            let error = of("r.io/x:1", &[config(folder.path(), "helper.json", text)]).unwrap_err();
            assert!(error.contains("docker-credential-qosm-nowhere") && error.contains("helper.json"), "{error}");
        }
        let other = config(folder.path(), "other.json", r#"{"credHelpers":{"s.io":"qosm-nowhere"}}"#);
        assert!(of("r.io/x:1", &[other]) == Ok(RegistryAuth::Anonymous));
    }

    #[test]
    fn unusable_credentials_are_an_error_instead_of_an_anonymous_request() {
        let folder = tempfile::tempdir().unwrap();
        let token = config(folder.path(), "token.json", r#"{"auths":{"r.io":{"identitytoken":"x","auth":"YTpi"}}}"#);
        let broken = config(folder.path(), "broken.json", "{");
        let missing = folder.path().join("missing.json");
        for (file, variable) in [(token, "identity token"), (broken, "broken.json"), (missing, "missing.json")] {
            let error = of("r.io/x:1", &[file]).unwrap_err();
            assert!(error.contains(variable) && error.contains("r.io"), "{error}");
        }
    }
}
