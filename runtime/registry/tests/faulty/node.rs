//! A node: its settings, its store, and its calls.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use qosm_model::digest::Digest;
use qosm_registry::trust::{TrustPolicy, TrustRule};
use qosm_registry::{HostSettings, Location, Pulled, RegistryError, RegistrySettings, Store, Stored};

use crate::artefact::Artefact;
use crate::registry::Registry;

/// A node with an empty store.
pub(crate) struct Node {
    folder: tempfile::TempDir,
    pub(crate) settings: RegistrySettings,
}

impl Node {
    /// A node that reaches these registries without TLS.
    pub(crate) fn beside(registries: &[&Registry]) -> Self {
        let mut settings = RegistrySettings::default();
        for registry in registries {
            settings.say(registry.host(), true, None);
        }
        Self { folder: tempfile::tempdir().unwrap(), settings }
    }

    /// The settings of one registry.
    pub(crate) fn host(&mut self, registry: &Registry) -> &mut HostSettings {
        self.settings.hosts.iter_mut().find(|host| host.registry == registry.host()).unwrap()
    }

    /// Replaces the trust rules.
    pub(crate) fn trust(&mut self, rules: Vec<TrustRule>) {
        self.settings.verification = TrustPolicy { rules };
    }

    /// The node's folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn store_path(&self) -> PathBuf {
        self.folder().join("store")
    }

    /// Opens the store with the current settings, as at a start.
    pub(crate) fn store(&self) -> Store {
        Store::open(self.settings.clone(), &self.store_path()).unwrap()
    }

    pub(crate) async fn pull(&self, reference: &str) -> Result<Pulled, RegistryError> {
        self.store().pull(&location(reference), None, false, &mut ()).await
    }

    pub(crate) async fn pull_anew(&self, reference: &str) -> Result<Pulled, RegistryError> {
        self.store().pull(&location(reference), None, true, &mut ()).await
    }

    pub(crate) fn stored(&self, reference: &str) -> Result<Option<Pulled>, RegistryError> {
        self.store().stored(&location(reference), None)
    }

    pub(crate) async fn copy(&self, from: &str, to: &str) -> Result<Stored, RegistryError> {
        self.store().copy(&location(from), &location(to), &mut ()).await
    }

    /// The error of a pull. Checks that the message begins with the repository, that the store returns nothing afterwards, and
    /// that each blob of the store matches its digest.
    pub(crate) async fn refusal(&self, reference: &str) -> RegistryError {
        let error = self.pull(reference).await.unwrap_err();
        let Location::Registry(parsed) = location(reference) else { panic!() };
        assert!(error.to_string().starts_with(&parsed.name()), "{error}");
        assert!(!matches!(self.stored(reference), Ok(Some(_))), "{reference} is served after: {error}");
        self.check_blobs();
        error
    }

    /// Checks that a pull succeeds and leaves no partial blob of an earlier failure.
    pub(crate) async fn check_pull(&self, reference: &str, artefact: &Artefact) {
        let pulled = self.pull(reference).await.unwrap();
        assert_eq!(pulled.digest, artefact.digest());
        assert!(pulled.module == artefact.module(), "another module than {reference}'s");
        assert_eq!(self.parts(), BTreeSet::new(), "left in `ingest`");
        self.check_blobs();
        assert_eq!(self.stored(reference).unwrap().unwrap().digest, artefact.digest());
    }

    /// Partial blobs: the names in `ingest`.
    pub(crate) fn parts(&self) -> BTreeSet<String> {
        names(&self.store_path().join("ingest"))
    }

    fn check_blobs(&self) {
        let folder = self.store_path().join("blobs/sha256");
        for name in names(&folder) {
            assert_eq!(Digest::of(&std::fs::read(folder.join(&name)).unwrap()).hex(), name);
        }
    }
}

pub(crate) fn location(text: &str) -> Location {
    text.parse().unwrap()
}

/// The error's message with its sources, as users read it.
pub(crate) fn message(error: &RegistryError) -> String {
    qosm_model::problem::chain(error)
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}
