//! Priority classes and QoS classes of pods, as the protocol defines them.
//!
//! Koordinator: `apis/extension/priority.go`, `apis/extension/priority_utils.go`, `apis/extension/qos_utils.go`.

use qosm_sdk::QosClass;

/// The label that names a priority class; takes precedence over `spec.priority`.
pub const PRIORITY_CLASS_LABEL: &str = "koordinator.sh/priority-class";

/// Koordinator's priority class of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriorityClass {
    /// No class, or an unknown one.
    #[default]
    None,
    /// `koord-free`: preemptible work without any promise.
    Free,
    /// `koord-batch`: runs on batch resources.
    Batch,
    /// `koord-mid`: runs on mid resources.
    Mid,
    /// `koord-prod`.
    Prod,
}

impl PriorityClass {
    /// The class with this name; [`Self::None`] for an unknown name.
    pub fn by_name(name: &str) -> Self {
        match name {
            "koord-prod" => Self::Prod,
            "koord-mid" => Self::Mid,
            "koord-batch" => Self::Batch,
            "koord-free" => Self::Free,
            _ => Self::None,
        }
    }

    /// The class whose range contains `priority`; [`Self::None`] if there is none.
    pub fn by_priority(priority: i32) -> Self {
        match priority {
            9000..=9999 => Self::Prod,
            7000..=7999 => Self::Mid,
            5000..=5999 => Self::Batch,
            3000..=3999 => Self::Free,
            _ => Self::None,
        }
    }

    /// The class of a pod: from the label if present, else from `spec.priority`. If that gives no class, it follows from `qos`, the QoS
    /// class that the pod declares or that corresponds to its Kubernetes QoS.
    pub fn of_pod(label: Option<&str>, priority: Option<i32>, qos: QosClass) -> Self {
        let said = label.map_or_else(|| priority.map_or(Self::None, Self::by_priority), Self::by_name);
        match (said, qos) {
            (Self::None, QosClass::Be) => Self::Batch,
            (Self::None, QosClass::System | QosClass::Lse | QosClass::Lsr | QosClass::Ls) => Self::Prod,
            (said, _) => said,
        }
    }

    /// Whether the pod's use reduces the batch resources. The priority class decides, not the QoS class.
    pub fn is_high(self) -> bool {
        !matches!(self, Self::Batch | Self::Free)
    }

    /// Whether resources that the pod leaves unused may be given to mid pods.
    pub fn is_prod(self) -> bool {
        matches!(self, Self::Prod | Self::None)
    }
}

/// Keys that may hold a pod's QoS class, in order of precedence; `true` for a label, `false` for an annotation.
const QOS_KEYS: [(bool, &str); 5] = [
    (true, "koordinator.sh/qosClass"),
    (true, "alibabacloud.com/qosClass"),
    (false, "koordinator.sh/qosClass"),
    (false, "alibabacloud.com/qosClass"),
    (true, "alibabacloud.com/qos"),
];

/// The QoS class that a pod declares; `None` if it declares none, or if the first key present holds no known class.
pub fn declared_qos<'v>(
    labels: impl Fn(&str) -> Option<&'v str>,
    annotations: impl Fn(&str) -> Option<&'v str>,
) -> Option<QosClass> {
    let found = QOS_KEYS.into_iter().find_map(|(is_label, key)| if is_label { labels(key) } else { annotations(key) });
    match found? {
        "LSE" => Some(QosClass::Lse),
        "LSR" => Some(QosClass::Lsr),
        "LS" => Some(QosClass::Ls),
        "BE" => Some(QosClass::Be),
        "SYSTEM" => Some(QosClass::System),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_fall_into_their_ranges() {
        use PriorityClass::{Batch, Free, Mid, None, Prod};
        for (priority, class) in [
            (i32::MIN, None),
            (-1, None),
            (0, None),
            (2999, None),
            (3000, Free),
            (3999, Free),
            (4000, None),
            (4999, None),
            (5000, Batch),
            (5999, Batch),
            (6000, None),
            (7000, Mid),
            (7999, Mid),
            (8000, None),
            (8999, None),
            (9000, Prod),
            (9999, Prod),
            (10_000, None),
            (2_000_000_000, None),
        ] {
            assert_eq!(PriorityClass::by_priority(priority), class, "{priority}");
        }
    }

    #[test]
    fn the_label_wins_then_the_priority_then_the_qos_class() {
        use PriorityClass::{Batch, Free, Mid, Prod};
        for (label, priority, qos, class) in [
            (Some("koord-prod"), Some(5500), QosClass::Be, Prod),
            (Some("koord-mid"), None, QosClass::Be, Mid),
            (Some("koord-batch"), Some(9500), QosClass::Ls, Batch),
            (Some("koord-free"), None, QosClass::Ls, Free),
            (Some("koord-gold"), Some(9500), QosClass::Be, Batch),
            (Some("koord-gold"), Some(5500), QosClass::Ls, Prod),
            (None, Some(7500), QosClass::Be, Mid),
            (None, Some(3500), QosClass::Lsr, Free),
            (None, Some(2_000_000_000), QosClass::System, Prod),
            (None, Some(100), QosClass::Lse, Prod),
            (None, None, QosClass::Lsr, Prod),
            (None, None, QosClass::Ls, Prod),
            (None, None, QosClass::Be, Batch),
        ] {
            assert_eq!(PriorityClass::of_pod(label, priority, qos), class, "{label:?} {priority:?} {qos:?}");
        }
    }

    #[test]
    fn batch_and_free_alone_are_low() {
        use PriorityClass::{Batch, Free, Mid, None, Prod};
        let classes = [Prod, Mid, Batch, Free, None];
        assert_eq!(classes.map(PriorityClass::is_high), [true, true, false, false, true]);
        assert_eq!(classes.map(PriorityClass::is_prod), [true, false, false, false, true]);
    }

    #[test]
    fn the_qos_class_is_read_from_the_first_place_that_has_one() {
        type Pairs = &'static [(&'static str, &'static str)];
        for (labels, annotations, class) in [
            (&[("koordinator.sh/qosClass", "BE")] as Pairs, &[] as Pairs, Some(QosClass::Be)),
            (&[("alibabacloud.com/qosClass", "LSR")], &[("koordinator.sh/qosClass", "BE")], Some(QosClass::Lsr)),
            (&[("alibabacloud.com/qos", "LS")], &[("koordinator.sh/qosClass", "BE")], Some(QosClass::Be)),
            (&[("alibabacloud.com/qos", "LS")], &[("alibabacloud.com/qosClass", "LSE")], Some(QosClass::Lse)),
            (&[("alibabacloud.com/qos", "BE")], &[], Some(QosClass::Be)),
            (&[("koordinator.sh/qosClass", "SYSTEM")], &[], Some(QosClass::System)),
            (&[("koordinator.sh/qosClass", "be")], &[("koordinator.sh/qosClass", "BE")], None),
            (&[("koordinator.sh/qosClass", "")], &[], None),
            (&[("koordinator.sh/qos", "BE")], &[], None),
            (&[], &[], None),
        ] {
            let find = |pairs: Pairs, key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
            assert_eq!(
                declared_qos(|key| find(labels, key), |key| find(annotations, key)),
                class,
                "{labels:?} {annotations:?}"
            );
        }
    }
}
