//! Properties of any manifest, for the fuzz targets in `fuzz/` and this crate's own tests. Each function panics
//! if its property does not hold.

use std::collections::BTreeSet;

use crate::pod::is_name;
use crate::{Quantity, parse_objects};

/// Manifests: the same text gives the same objects, each once and with a name that can be part of a path, and no more of them
/// than the text has bytes; a problem names its object.
pub fn objects(text: &str) {
    let objects = parse_objects(text, "some.yaml");
    assert_eq!(objects, parse_objects(text, "some.yaml"), "read twice");
    assert!(objects.pods.len() + objects.config_maps.len() <= text.len(), "objects out of nowhere");

    let keys: BTreeSet<_> = objects.pods.iter().map(|pod| pod.key()).collect();
    assert_eq!(keys.len(), objects.pods.len(), "two pods of one name");
    let uids: BTreeSet<_> = objects.pods.iter().map(|pod| &pod.uid).collect();
    assert_eq!(uids.len(), objects.pods.len(), "two pods of one UID");
    let keys: BTreeSet<_> = objects.config_maps.iter().map(|map| map.key()).collect();
    assert_eq!(keys.len(), objects.config_maps.len(), "two ConfigMaps of one name");
    for pod in &objects.pods {
        let containers = pod.containers.iter().map(|container| &container.name);
        for name in [&pod.namespace, &pod.name].into_iter().chain(containers) {
            assert!(is_name(name), "{name:?}");
        }
    }
    for problem in &objects.problems {
        assert!(!problem.object.is_empty() && !problem.message.is_empty(), "{problem:?}");
    }
}

/// Quantities: a parsed quantity that is formatted and parsed again is the same.
pub fn quantity(text: &str) {
    let Ok(quantity) = Quantity::parse(text) else { return };
    let written = quantity.to_string();
    assert_eq!(Quantity::parse(&written), Ok(quantity), "{written:?}");
    assert_eq!(quantity.is_zero(), quantity == Quantity::ZERO, "{text:?}");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_hold_for_any_text(text: String) {
            objects(&text);
            quantity(&text);
        }

        #[test]
        fn they_hold_for_what_looks_like_a_manifest(
            names in proptest::collection::vec("[a-z./ -]{0,3}", 3),
            uid in "[ab]?", kind in "(Pod|ConfigMap|List|Node)", amount in "[0-9.+-]{0,4}(m|Ki|Gi|e3|x)?",
        ) {
            let [name, namespace, container] = names.as_slice() else { return Ok(()) };
            let one = |kind: &str| format!(
                "kind: {kind}\nmetadata: {{name: '{name}', namespace: '{namespace}', uid: '{uid}'}}\nspec:\n  \
                 containers: [{{name: '{container}', resources: {{limits: {{memory: '{amount}'}}}}}}]\n---\n"
            );
            objects(&[one("Pod"), one(&kind), one("Pod")].concat());
            quantity(&amount);
        }
    }
}
