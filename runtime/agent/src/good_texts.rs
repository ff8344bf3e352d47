//! The last good texts of ConfigMaps in the state folder: an agent that restarts beside a broken ConfigMap continues with them.

use std::collections::BTreeMap;

use cap_std::fs::Dir;
use qosm_model::layering::GoodTexts;

use crate::state_file;

const FILE: &str = "config-maps.json";
/// The reader of the whole cluster ConfigMap. No policy has an empty name.
const CLUSTER: &str = "";
/// Maximum size of all texts in bytes. A ConfigMap has at most 1 MiB.
const MAX_BYTES: usize = 16 << 20;

/// One text in the file: ConfigMap, key and text.
type Entry = (String, String, String);

/// The last good texts as the file has them.
#[derive(Debug, Default)]
pub(crate) struct SavedTexts {
    /// `None` in a plan or replay, which keeps nothing.
    state: Option<Dir>,
    /// By reader: policies differ in the texts that they can use.
    written: BTreeMap<String, GoodTexts>,
}

impl SavedTexts {
    /// Reads what an earlier agent wrote. A file that cannot be parsed is logged and counts as empty.
    pub(crate) fn read(state: Option<Dir>) -> Self {
        let content = state.as_ref().and_then(|state| state_file::read(state, FILE));
        let Some(content) = content else { return Self { state, written: BTreeMap::new() } };
        let entries = serde_json::from_slice::<BTreeMap<String, Vec<Entry>>>(&content).unwrap_or_else(|error| {
            tracing::warn!(file = FILE, %error, "file cannot be read; it counts as empty");
            BTreeMap::new()
        });
        let texts = |entries: Vec<Entry>| -> GoodTexts {
            entries.into_iter().map(|(map, key, text)| ((map, key), text)).collect()
        };
        let written = entries.into_iter().map(|(reader, entries)| (reader, texts(entries))).collect();
        Self { state, written }
    }

    /// The texts of the cluster ConfigMap.
    pub(crate) fn of_cluster(&self) -> GoodTexts {
        self.written.get(CLUSTER).cloned().unwrap_or_default()
    }

    /// The texts that policies read by their protocol, by the policy's state key.
    pub(crate) fn of_policies(&self) -> BTreeMap<String, GoodTexts> {
        let policies = self.written.iter().filter(|(reader, _)| *reader != CLUSTER);
        policies.map(|(reader, texts)| (reader.clone(), texts.clone())).collect()
    }

    /// Writes the texts if they have changed.
    pub(crate) fn write(&mut self, cluster: &GoodTexts, policies: &BTreeMap<String, GoodTexts>) {
        let Some(state) = &self.state else { return };
        let mut texts = policies.clone();
        texts.insert(CLUSTER.to_owned(), cluster.clone());
        texts.retain(|_, texts| !texts.is_empty());
        if texts == self.written {
            return;
        }
        let bytes: usize = texts.values().flat_map(BTreeMap::values).map(String::len).sum();
        if bytes > MAX_BYTES {
            tracing::warn!(
                file = FILE,
                bytes,
                "not written: the texts of the ConfigMaps are too large; a restart forgets the last good ones"
            );
            return;
        }
        let content: BTreeMap<&String, Vec<(&String, &String, &String)>> = texts
            .iter()
            .map(|(reader, texts)| (reader, texts.iter().map(|((map, key), text)| (map, key, text)).collect()))
            .collect();
        if state_file::write(state, FILE, &content) {
            self.written = texts;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> GoodTexts {
        GoodTexts::from([(("kube-system/ack-slo-config".to_owned(), "key".to_owned()), text.to_owned())])
    }

    #[test]
    fn what_is_written_is_what_the_next_agent_reads_and_a_damaged_file_counts_as_empty() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Some(Dir::open_ambient_dir(folder.path(), cap_std::ambient_authority()).unwrap());
        let mut saved = SavedTexts::read(open());
        saved.write(&GoodTexts::new(), &BTreeMap::new());
        assert!(!folder.path().join(FILE).exists(), "nothing to keep, nothing written");
        let policies = BTreeMap::from([("cpu-burst".to_owned(), texts("{}"))]);
        saved.write(&texts("[]"), &policies);

        let next = SavedTexts::read(open());
        assert_eq!((next.of_cluster(), next.of_policies()), (texts("[]"), policies));
        saved.write(&GoodTexts::new(), &BTreeMap::new());
        assert_eq!(SavedTexts::read(open()).written, BTreeMap::new(), "a removed key is forgotten");

        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert_eq!(SavedTexts::read(open()).written, BTreeMap::new());
    }
}
