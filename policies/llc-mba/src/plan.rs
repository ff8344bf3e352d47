//! Computes which classes exist, and which pods are in them.

use std::collections::BTreeMap;

use qosm_sdk::{Pod, PodId};

use crate::annotation::PodConfig;
use crate::config::{Class, Shared};
use crate::protocol::ANNOTATION;
use crate::shares::Shares;

/// Maximum number of classes that pods may ask for on a node: more than any processor has, but fewer than the host accepts.
const OF_PODS: usize = 250;

/// A pod and its own shares.
#[derive(Clone, Debug)]
pub(crate) struct Tracked {
    pub(crate) pod: Pod<PodConfig>,
    pub(crate) own: Option<Shares>,
}

impl Tracked {
    /// The QoS class of the pod.
    pub(crate) fn class(&self) -> Class {
        Class::of(self.pod.qos)
    }
}

/// A class to define.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClassSpec {
    pub(crate) shares: Shares,
    pub(crate) reason: String,
}

/// The complete plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The classes, by name.
    pub(crate) classes: BTreeMap<String, ClassSpec>,
    /// The class of each pod that is in one.
    pub(crate) members: BTreeMap<PodId, String>,
    /// Pods whose own class would exceed the maximum number.
    pub(crate) crowded_out: Vec<PodId>,
}

impl Plan {
    /// Computes the plan. Enabled classes are defined even without pods, so that classes of single pods do not take their place. `be` has
    /// the current shares of BE and the reason, if they differ from the configured ones.
    pub(crate) fn new(
        shared: &BTreeMap<Class, Shared>,
        be: Option<ClassSpec>,
        pods: &BTreeMap<PodId, Tracked>,
    ) -> Self {
        let mut plan = Self::default();
        for (&class, &shared) in shared {
            let spec = match &be {
                Some(be) if class == Class::Be => be.clone(),
                _ => of_class(class, shared),
            };
            plan.classes.insert(class.name().to_owned(), spec);
        }
        let mut of_pods = 0;
        for (&id, tracked) in pods.iter().filter(|(_, tracked)| tracked.pod.active) {
            let mut class =
                Some(tracked.class()).filter(|class| shared.contains_key(class)).map(|class| class.name().to_owned());
            if let Some(own) = &tracked.own {
                let name = own.name();
                if plan.classes.contains_key(&name) {
                    class = Some(name);
                } else if of_pods < OF_PODS {
                    of_pods += 1;
                    let reason = format!("pods ask for {own} by annotation {ANNOTATION}");
                    plan.classes.insert(name.clone(), ClassSpec { shares: own.clone(), reason });
                    class = Some(name);
                } else {
                    plan.crowded_out.push(id);
                }
            }
            if let Some(class) = class {
                plan.members.insert(id, class);
            }
        }
        plan
    }
}

/// A class with its configured shares.
pub(crate) fn of_class(class: Class, shared: Shared) -> ClassSpec {
    let shares = Shares::everywhere(shared.share());
    let reason = format!("{} of resource-qos-config: {shares}", class.key());
    ClassSpec { shares, reason }
}

/// The reason why a pod is in a class.
pub(crate) fn why(tracked: &Tracked, class: &str) -> String {
    if class == tracked.class().name() {
        format!("its QoS class has shares in {} of resource-qos-config", tracked.class().key())
    } else {
        format!("its annotation {ANNOTATION} asks for it")
    }
}

#[cfg(test)]
mod tests {
    use qosm_sdk::{PodFacts, QosClass, mock};

    use super::*;

    fn pod(id: PodId, qos: QosClass, json: &str) -> (PodId, Tracked) {
        let config: PodConfig = serde_json::from_str(json).unwrap();
        let own = config.own().unwrap();
        let facts = PodFacts { qos, ..mock::pod(id, "default", &format!("pod-{id}")) };
        (id, Tracked { pod: Pod { facts, config: Some(config) }, own })
    }

    fn be() -> BTreeMap<Class, Shared> {
        BTreeMap::from([(Class::Be, Shared { start: 0, end: 30, bandwidth: Some(100) })])
    }

    #[test]
    fn pods_with_equal_shares_share_a_class() {
        let pods = BTreeMap::from([
            pod(1, QosClass::Be, r#"{"llc":{"schemata":{"range":[0,50]}}}"#),
            pod(
                2,
                QosClass::Ls,
                r#"{"LLC":{"schemata":{"range":[0,50]},"schemataPerCache":[{"cacheid":1,"range":[0,50]}]}}"#,
            ),
            pod(3, QosClass::Be, "{}"),
            pod(4, QosClass::Ls, "{}"),
        ]);
        let plan = Plan::new(&be(), None, &pods);
        assert_eq!(plan.classes.keys().collect::<Vec<_>>(), ["be", "pods_l3-0-50"]);
        let members: Vec<_> = plan.members.iter().map(|(id, class)| (*id, class.as_str())).collect();
        assert_eq!(members, [(1, "pods_l3-0-50"), (2, "pods_l3-0-50"), (3, "be")]);
    }

    #[test]
    fn a_pod_that_has_ended_is_in_no_class() {
        let (id, mut ended) = pod(1, QosClass::Be, r#"{"mb":{"schemata":{"percent":50}}}"#);
        ended.pod.facts.active = false;
        let plan = Plan::new(&be(), None, &BTreeMap::from([(id, ended)]));
        assert_eq!(plan.classes.keys().collect::<Vec<_>>(), ["be"], "it is enabled");
        assert!(plan.members.is_empty());
    }

    #[test]
    fn there_are_never_more_classes_than_the_host_takes() {
        let asked = |id| {
            let (start, end) = (id % 90, 91 + id / 90);
            pod(id, QosClass::Be, &format!(r#"{{"llc":{{"schemata":{{"range":[{start},{end}]}}}}}}"#))
        };
        let pods: BTreeMap<_, _> = (0..400).map(asked).collect();
        let plan = Plan::new(&be(), None, &pods);
        assert_eq!(plan.classes.len(), OF_PODS + 1);
        assert_eq!(plan.crowded_out.len(), 400 - OF_PODS);
        assert_eq!(plan.members[&399], "be", "it stays in its QoS class");
    }
}
