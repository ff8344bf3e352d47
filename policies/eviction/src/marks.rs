//! Labels and annotations about eviction that a pod's owner sets. Parse them when a pod changes, not at every tick.

use std::collections::BTreeMap;
use std::fmt;

use qosm_sdk::shown;

use crate::feature::Feature;

/// Label: the pod may be evicted by the features that require this label; only the exact value `true` counts.
pub const ENABLED: &str = "koordinator.sh/eviction-enabled";
/// Annotation: a JSON list of the features that may evict the pod.
pub const POLICY: &str = "koordinator.sh/eviction-policy";
/// Annotation: eviction priority; pods with a lower one leave first.
pub const PRIORITY: &str = "koordinator.sh/eviction-priority";
/// Label: priority among pods of equal `spec.priority`; pods with a lower one leave first.
pub const SUB_PRIORITY: &str = "koordinator.sh/priority";
/// Label: the pod's priority class; takes precedence over `spec.priority`.
pub const PRIORITY_CLASS: &str = "koordinator.sh/priority-class";

/// A priority class of koordinator. Source: koordinator `apis/extension/priority.go`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriorityClass {
    /// `koord-prod`.
    Prod,
    /// `koord-mid`.
    Mid,
    /// `koord-batch`.
    Batch,
    /// `koord-free`.
    Free,
}

impl PriorityClass {
    /// The class with this name; `None` for any other name.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "koord-prod" => Some(Self::Prod),
            "koord-mid" => Some(Self::Mid),
            "koord-batch" => Some(Self::Batch),
            "koord-free" => Some(Self::Free),
            _ => None,
        }
    }

    /// The class whose range contains this priority; `None` if there is none.
    pub fn of_value(priority: i32) -> Option<Self> {
        match priority {
            9_000..=9_999 => Some(Self::Prod),
            7_000..=7_999 => Some(Self::Mid),
            5_000..=5_999 => Some(Self::Batch),
            3_000..=3_999 => Some(Self::Free),
            _ => None,
        }
    }

    /// Priority of a pod that has the class but no `spec.priority`.
    pub fn default_value(self) -> i32 {
        match self {
            Self::Prod => 9_500,
            Self::Mid => 7_500,
            Self::Batch => 5_500,
            Self::Free => 3_500,
        }
    }
}

/// The features that may evict a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Allowed {
    /// All features.
    #[default]
    All,
    /// These features; empty if the annotation is empty or cannot be read.
    Only(Vec<Feature>),
}

impl Allowed {
    /// Whether this feature may evict the pod.
    pub fn has(&self, feature: Feature) -> bool {
        match self {
            Self::All => true,
            Self::Only(features) => features.contains(&feature),
        }
    }
}

/// The parsed labels and annotations of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// [`ENABLED`].
    pub is_enabled: bool,
    /// [`POLICY`].
    pub allowed: Allowed,
    /// [`PRIORITY`]; 0 if not set.
    pub eviction_priority: i32,
    /// [`SUB_PRIORITY`].
    pub sub_priority: Option<i64>,
    /// [`PRIORITY_CLASS`].
    pub class: Option<PriorityClass>,
}

/// Maximum length of the list of features in bytes. A pod's owner may write 256 KiB, which would take the time of an evaluation.
const MAX_BYTES: usize = 4096;

/// A label or annotation that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkError {
    /// Key of the label or annotation.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// Which values are allowed, and how the invalid value is treated.
    pub way_out: &'static str,
}

impl fmt::Display for MarkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is `{}`; {}", self.key, self.value, self.way_out)
    }
}

impl std::error::Error for MarkError {}

impl Marks {
    /// Reads labels and annotations. Values that cannot be read are returned as errors and treated as koordinator treats them, which never
    /// makes a pod easier to evict than its owner meant: a list allows no feature, a priority counts as 0 or as `spec.priority`.
    ///
    /// Source: koordinator `apis/extension/evict.go`, `pkg/koordlet/qosmanager/plugins/util/evict.go`.
    pub fn parse(labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) -> (Self, Vec<MarkError>) {
        let mut errors = Vec::new();
        let mut wrong = |key, value: &str, way_out| errors.push(MarkError { key, value: shown(value), way_out });
        let mut marks =
            Self { is_enabled: labels.get(ENABLED).is_some_and(|value| value == "true"), ..Self::default() };
        if let Some(value) = labels.get(ENABLED).filter(|value| !matches!(value.as_str(), "true" | "false")) {
            wrong(ENABLED, value, "write \"true\"; as it is, the pod is not evicted by features that ask for it");
        }
        if let Some(text) = annotations.get(POLICY) {
            let names: Option<Option<Vec<Option<String>>>> =
                (text.len() <= MAX_BYTES).then(|| serde_json::from_str(text).ok()).flatten();
            if names.is_none() {
                wrong(
                    POLICY,
                    text,
                    "write a JSON list of features, [\"MemoryEvict\"]; as it is, no feature may evict the pod",
                );
            }
            let names: Vec<_> = names.flatten().unwrap_or_default().into_iter().flatten().collect();
            let named = |feature: &Feature| names.iter().any(|name| name == feature.name());
            if let Some(name) =
                names.iter().find(|name| Feature::EACH.iter().all(|feature| feature.name() != name.as_str()))
            {
                wrong(POLICY, name, "there is no such feature; write its name exactly");
            }
            marks.allowed = Allowed::Only(Feature::EACH.into_iter().filter(named).collect());
        }
        if let Some(value) = annotations.get(PRIORITY) {
            match value.parse() {
                Ok(priority) => marks.eviction_priority = priority,
                Err(_) => wrong(PRIORITY, value, "write a whole number of 32 bits; as it is, it counts as 0"),
            }
        }
        if let Some(value) = labels.get(SUB_PRIORITY) {
            marks.sub_priority = value.parse().ok();
            if marks.sub_priority.is_none() {
                wrong(SUB_PRIORITY, value, "write a whole number; as it is, spec.priority counts");
            }
        }
        if let Some(value) = labels.get(PRIORITY_CLASS) {
            marks.class = PriorityClass::of_name(value);
            if marks.class.is_none() {
                wrong(
                    PRIORITY_CLASS,
                    value,
                    "write koord-prod, koord-mid, koord-batch or koord-free; as it is, the QoS class decides",
                );
            }
        }
        (marks, errors)
    }

    /// Whether the label is present, even with an unknown class: `spec.priority` does not decide the class then.
    pub(crate) fn names_class(labels: &BTreeMap<String, String>) -> bool {
        labels.contains_key(PRIORITY_CLASS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(key: &str, value: Option<&str>) -> BTreeMap<String, String> {
        value.map(|value| (key.to_owned(), value.to_owned())).into_iter().collect()
    }

    #[test]
    fn only_the_word_true_enables() {
        for (value, is_enabled, errors) in [
            (None, false, 0),
            (Some("true"), true, 0),
            (Some("false"), false, 0),
            (Some("True"), false, 1),
            (Some("1"), false, 1),
            (Some(""), false, 1),
        ] {
            let (marks, told) = Marks::parse(&map(ENABLED, value), &BTreeMap::new());
            assert_eq!((marks.is_enabled, told.len()), (is_enabled, errors), "{value:?}");
        }
    }

    #[test]
    fn a_list_of_features_allows_those_and_what_is_no_list_allows_none() {
        let all = Feature::EACH.to_vec();
        for (value, allowed, errors) in [
            (None, all.clone(), 0),
            (Some(r#"["CPUEvict"]"#), vec![Feature::Cpu], 0),
            (Some(r#"["MemoryEvict", "BECPUEvict", "MemoryEvict"]"#), vec![Feature::BeCpu, Feature::Memory], 0),
            (Some("[]"), vec![], 0),
            (Some("null"), vec![], 0),
            (Some(""), vec![], 1),
            (Some("CPUEvict"), vec![], 1),
            (Some(r#"{"CPUEvict": true}"#), vec![], 1),
            (Some(r#"["CPUEvict", 3]"#), vec![], 1),
            (Some(r#"["cpuevict"]"#), vec![], 1),
            (Some(r#"["CPUEvict", null]"#), vec![Feature::Cpu], 0),
            (Some(r#"["CPUEvict", "Other"]"#), vec![Feature::Cpu], 1),
        ] {
            let (marks, told) = Marks::parse(&BTreeMap::new(), &map(POLICY, value));
            let has: Vec<_> = Feature::EACH.into_iter().filter(|feature| marks.allowed.has(*feature)).collect();
            assert_eq!((has, told.len()), (allowed, errors), "{value:?}");
        }
    }

    #[test]
    fn priorities_are_whole_numbers() {
        for (value, priority, errors) in [
            (None, 0, 0),
            (Some("5"), 5, 0),
            (Some("-2147483648"), i32::MIN, 0),
            (Some("2147483648"), 0, 1),
            (Some("1.5"), 0, 1),
            (Some(" 5"), 0, 1),
            (Some(""), 0, 1),
            (Some("1e400"), 0, 1),
            (Some("NaN"), 0, 1),
        ] {
            let (marks, told) = Marks::parse(&BTreeMap::new(), &map(PRIORITY, value));
            assert_eq!((marks.eviction_priority, told.len()), (priority, errors), "{value:?}");
        }
        for (value, priority, errors) in [
            (None, None, 0),
            (Some("5"), Some(5), 0),
            (Some("-3"), Some(-3), 0),
            (Some("4294967296"), Some(4_294_967_296), 0),
            (Some("low"), None, 1),
            (Some("9223372036854775808"), None, 1),
        ] {
            let (marks, told) = Marks::parse(&map(SUB_PRIORITY, value), &BTreeMap::new());
            assert_eq!((marks.sub_priority, told.len()), (priority, errors), "{value:?}");
        }
        let (_, told) = Marks::parse(&BTreeMap::new(), &map(PRIORITY, Some("high")));
        insta::assert_snapshot!(told[0], @"`koordinator.sh/eviction-priority` is `high`; write a whole number of 32 bits; as it is, it counts as 0");
    }

    #[test]
    fn priority_classes_have_ranges_names_and_defaults() {
        for (class, name, range, default) in [
            (PriorityClass::Prod, "koord-prod", 9_000..=9_999, 9_500),
            (PriorityClass::Mid, "koord-mid", 7_000..=7_999, 7_500),
            (PriorityClass::Batch, "koord-batch", 5_000..=5_999, 5_500),
            (PriorityClass::Free, "koord-free", 3_000..=3_999, 3_500),
        ] {
            assert_eq!((PriorityClass::of_name(name), class.default_value()), (Some(class), default));
            for priority in [*range.start(), *range.end()] {
                assert_eq!(PriorityClass::of_value(priority), Some(class), "{priority}");
            }
            assert_eq!(PriorityClass::of_value(range.start() - 1).filter(|other| *other == class), None);
            assert_eq!(PriorityClass::of_value(range.end() + 1).filter(|other| *other == class), None);
        }
        for priority in [i32::MIN, -1, 0, 2_999, 4_500, 6_500, 8_500, 10_000, 2_000_000_000, i32::MAX] {
            assert_eq!(PriorityClass::of_value(priority), None, "{priority}");
        }
        assert_eq!(PriorityClass::of_name("Koord-Batch"), None);
    }
}
