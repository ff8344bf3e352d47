//! Core scheduling: each container is in the group of its pod, and the threads of a core run threads of one group at a time.

use qosm_sdk::{PodFacts, core_group};

use crate::rule::{Wanted, own_group};
use crate::upstream::is_of_the_node;

/// The number of the core scheduling group of a pod's containers, and the reason; `None` = no group.
pub fn group(pod: &PodFacts, wanted: &Wanted) -> Option<(u64, String)> {
    let name = wanted.core_group.as_deref().filter(|_| pod.active && !is_of_the_node(pod))?;
    let what = match name {
        "" => "the common core scheduling group".to_owned(),
        name if name == own_group(pod) => "a core scheduling group of its own".to_owned(),
        name => format!("core scheduling group `{name}`"),
    };
    Some((core_group(name), wanted.source.of(&what)))
}

#[cfg(test)]
mod tests {
    use qosm_sdk::{QosClass, mock};

    use super::*;
    use crate::rule::Source;
    use crate::strategy::Class;

    fn wanted(group: Option<&str>) -> Wanted {
        Wanted { core_group: group.map(str::to_owned), source: Source::Class(Class::Ls), ..Wanted::default() }
    }

    #[test]
    fn a_group_has_the_number_of_its_name_and_says_whose_it_is() {
        let pod = PodFacts { declared_qos: Some(QosClass::Ls), ..mock::pod(1, "default", "web") };
        for (name, reason) in [
            (Some("a/expeller"), "core scheduling group `a/expeller` of class LS"),
            (Some(""), "the common core scheduling group of class LS"),
            (Some(own_group(&pod).as_str()), "a core scheduling group of its own of class LS"),
        ] {
            assert_eq!(group(&pod, &wanted(name)), name.map(|name| (core_group(name), reason.to_owned())));
        }
        assert_eq!(group(&pod, &wanted(None)), None);
    }

    #[test]
    fn pods_that_have_ended_and_those_of_the_node_itself_are_in_none() {
        let web = mock::pod(1, "default", "web");
        for pod in [
            PodFacts { active: false, ..web.clone() },
            PodFacts { priority: Some(2_000_001_000), declared_qos: None, ..web },
        ] {
            assert_eq!(group(&pod, &wanted(Some("a"))), None);
        }
    }
}
