//! Names of targets in reports, events and the log.

use qosm_model::knob::{Level, Target};

use super::PodTable;

pub(crate) struct Subject {
    pub(crate) level: Level,
    pub(crate) tier: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) pod: Option<String>,
    pub(crate) container: Option<String>,
}

impl Subject {
    pub(crate) fn key(&self) -> String {
        match (&self.namespace, &self.pod) {
            (Some(namespace), Some(pod)) => format!("{namespace}/{pod}"),
            _ => String::new(),
        }
    }

    pub(crate) fn shown(&self) -> String {
        if self.level == Level::Node {
            return "node".to_owned();
        }
        match (&self.tier, &self.container) {
            (Some(tier), _) => format!("tier {tier}"),
            (None, Some(container)) => format!("{}/{container}", self.key()),
            (None, None) => self.key(),
        }
    }
}

impl PodTable {
    pub(crate) fn subject(&self, target: Target) -> Subject {
        let leaving = || {
            self.leaving.iter().find_map(|entry| {
                entry.targets().position(|known| known == target).map(|place| (entry, place.checked_sub(1)))
            })
        };
        let found = match target {
            Target::Node => None,
            Target::Tier(tier) => {
                return Subject {
                    level: Level::Tier,
                    tier: Some(tier.to_string()),
                    namespace: None,
                    pod: None,
                    container: None,
                };
            }
            Target::Pod(id) => self.get(id).map(|entry| (entry, None)),
            Target::Container(id) => self.owner(id).map(|(entry, place)| (entry, Some(place))),
        };
        if let Target::Container(id) = target
            && let Some(gone) = self.leaving_containers.iter().find(|gone| gone.id == id)
            && let Some(entry) = self.get(gone.pod)
        {
            return Subject {
                level: Level::Container,
                tier: None,
                namespace: Some(entry.pod.namespace.clone()),
                pod: Some(entry.pod.name.clone()),
                container: Some(gone.name.clone()),
            };
        }
        let found = found.or_else(leaving);
        Subject {
            level: target.level(),
            tier: None,
            namespace: found.map(|(entry, _)| entry.pod.namespace.clone()),
            pod: found.map(|(entry, _)| entry.pod.name.clone()),
            container: found.and_then(|(entry, place)| entry.pod.containers.get(place?)).map(|c| c.name.clone()),
        }
    }

    /// Name of a target for log lines.
    pub(crate) fn shown(&self, target: Target) -> String {
        self.subject(target).shown()
    }
}
