//! Merges the strategy of a node: label over annotation over the first matching entry of `nodeConfigs` over the cluster's strategy.
//!
//! Koordinator: `pkg/util/sloconfig/colocation_config.go`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::decimal::Decimal;
use crate::finding::Finding;
use crate::json::{self, Fault};
use crate::selector::Selector;
use crate::strategy::{MAX_PERCENT, Strategy};

/// The key of the ConfigMap, for findings.
const KEY: &str = "colocation-config";

/// Node annotation with a part of a strategy.
pub const STRATEGY_ANNOTATION: &str = "node.koordinator.sh/colocation-strategy";

/// Node labels that set one percentage each, written as a ratio.
pub const RATIO_LABELS: [&str; 4] = [
    "node.koordinator.sh/cpu-reclaim-ratio",
    "node.koordinator.sh/memory-reclaim-ratio",
    "node.koordinator.sh/mid-static-cpu-reserved-ratio",
    "node.koordinator.sh/mid-static-memory-reserved-ratio",
];

/// The checked body of the ConfigMap key `colocation-config`: the cluster's strategy and the entries for some nodes. A host that has
/// already merged the entries passes a body without `nodeConfigs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    cluster: Strategy,
    nodes: Vec<NodeLayer>,
    findings: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeLayer {
    selector: Option<Selector>,
    strategy: Strategy,
    /// Whether the entry sets `enable` itself.
    says_enable: bool,
}

impl Layers {
    /// Only the base strategy, without any layer.
    pub fn none(base: Strategy) -> Self {
        Self { cluster: base, ..Self::default() }
    }

    /// Reads the body as if the fields that [`Layers::read`] refuses were left out, and returns these too. An `enable` that cannot be used
    /// switches off.
    pub fn read_rest(body: &Map<String, Value>, base: &Strategy) -> (Self, Vec<Fault>) {
        let (mut body, mut faults) = (body.clone(), Vec::new());
        let mut layers = loop {
            let fault = match Self::read(&body, base) {
                Ok(layers) => break layers,
                Err(fault) => fault,
            };
            let name = fault.field.split(['.', '[']).next().unwrap_or_default().to_owned();
            let all = body.len();
            body.retain(|key, _| !key.eq_ignore_ascii_case(&name));
            faults.push(fault);
            if body.len() == all {
                break Self::none(base.clone());
            }
        };
        if faults.iter().any(|fault| fault.field.eq_ignore_ascii_case("enable")) {
            layers.switch_off();
        }
        (layers, faults)
    }

    /// Reads and checks the body, which is applied over a base strategy. An entry of `nodeConfigs` that cannot be used matches no node; the
    /// rest applies.
    ///
    /// # Errors
    ///
    /// Returns the field of the cluster's strategy that cannot be used, e.g. `degradeTimeMinutes`.
    pub fn read(body: &Map<String, Value>, base: &Strategy) -> Result<Self, Fault> {
        let cluster = base.overlaid(body)?;
        let (mut nodes, mut findings) = (Vec::new(), Vec::new());
        findings.extend(misplaced(body).map(|fault| Finding::new(KEY, fault)));
        let entries = json::list(body, "nodeConfigs").unwrap_or_else(|fault| {
            findings.push(Finding::new(KEY, fault));
            None
        });
        for (index, item) in entries.into_iter().flatten().enumerate() {
            match NodeLayer::read(item, &cluster) {
                Ok(layer) => {
                    let misplaced = item.as_object().into_iter().flat_map(misplaced);
                    let place = format!("nodeConfigs[{index}]");
                    findings.extend(misplaced.map(|fault| Finding::new(KEY, fault.within(&place))));
                    if layer.selector.is_none() {
                        let message = "has no nodeSelector and is therefore for no node; write `{}` to mean every node";
                        findings.push(Finding::new(KEY, Fault::new(&place, message)));
                    }
                    nodes.push(layer);
                }
                Err(fault) => findings.push(Finding::new(KEY, fault.within(&format!("nodeConfigs[{index}]")))),
            }
        }
        Ok(Self { cluster, nodes, findings })
    }

    /// Switches publishing off, also for the nodes of entries that do not set `enable`.
    pub fn switch_off(&mut self) {
        self.cluster.enable = false;
        for node in self.nodes.iter_mut().filter(|node| !node.says_enable) {
            node.strategy.enable = false;
        }
    }

    /// The effective strategy of a node, and findings about layers that cannot be used.
    pub fn effective(
        &self,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> (Strategy, Vec<Finding>) {
        let mut findings = self.findings.clone();
        let matching =
            self.nodes.iter().find(|node| node.selector.as_ref().is_some_and(|selector| selector.matches(labels)));
        let mut strategy = matching.map_or(&self.cluster, |node| &node.strategy).clone();

        if let Some(text) = annotations.get(STRATEGY_ANNOTATION) {
            match json::parse(text).and_then(|layer| strategy.overlaid(&layer)) {
                Ok(overlaid) => strategy = overlaid,
                Err(fault) => findings.push(Finding::new(STRATEGY_ANNOTATION, fault)),
            }
        }

        let fields = [
            &mut strategy.cpu_reclaim_percent,
            &mut strategy.memory_reclaim_percent,
            &mut strategy.mid_static_cpu_percent,
            &mut strategy.mid_static_memory_percent,
        ];
        for (label, field) in RATIO_LABELS.into_iter().zip(fields) {
            let Some(text) = labels.get(label) else { continue };
            match percent(text) {
                Ok(percent) => *field = percent,
                Err(message) => findings.push(Finding::new(label, Fault::new("", message))),
            }
        }
        (strategy, findings)
    }
}

impl NodeLayer {
    fn read(item: &Value, cluster: &Strategy) -> Result<Self, Fault> {
        let Value::Object(fields) = item else {
            return Err(Fault::new("", format!("is {}; write an object", json::shown(item))));
        };
        let strategy = cluster.overlaid(fields)?;
        let selector = json::object(fields, "nodeSelector")?.map(Selector::read).transpose();
        let selector = selector.map_err(|fault| fault.within("nodeSelector"))?;
        let says_enable = json::switch(fields, "enable")?.is_some();
        Ok(Self { selector, strategy, says_enable })
    }
}

/// Fields of a strategy that are objects or lists: Koordinator's own, and those of an entry for some nodes.
const STRUCTURED: [&str; 4] = ["metricAggregatePolicy", "nodeConfigs", "nodeSelector", "extensions"];

/// Faults for strategies that belong to another key, such as `cpuBurst`. Unknown fields with a plain value are ignored, since Koordinator's
/// strategy has many fields that only its manager uses.
fn misplaced(body: &Map<String, Value>) -> impl Iterator<Item = Fault> {
    let is_known = |name: &String| STRUCTURED.iter().any(|known| known.eq_ignore_ascii_case(name));
    let others = body.iter().filter(move |(name, value)| (value.is_object() || value.is_array()) && !is_known(name));
    others.map(|(name, _)| {
        let way_out = "is no field of a colocation strategy and does nothing here; strategies of other policies have keys of their own, \
                       such as cpu-burst-config, resource-qos-config, resource-threshold-config";
        Fault::new(name, way_out)
    })
}

/// Parses a ratio into percent.
fn percent(text: &str) -> Result<u32, String> {
    let way_out = "write a ratio from 0 to 100, e.g. 0.6, or remove the label";
    let ratio = Decimal::parse(text).map_err(|error| format!("is `{text}`, which {error}; {way_out}"))?;
    u32::try_from(ratio.percent())
        .ok()
        .filter(|percent| *percent <= MAX_PERCENT)
        .ok_or_else(|| format!("is `{text}`, which is too large; {way_out}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn layers(json: &str) -> Layers {
        Layers::read(&json::parse(json).unwrap(), &Strategy::default()).unwrap()
    }

    const BODY: &str = r#"{
        "enable": true, "cpuReclaimThresholdPercent": 50,
        "nodeConfigs": [
            {"name": "no selector", "cpuReclaimThresholdPercent": 1},
            {"name": "a", "nodeSelector": {"matchLabels": {"pool": "a"}}, "cpuReclaimThresholdPercent": 70},
            {"name": "again", "nodeSelector": {"matchLabels": {"pool": "a"}}, "memoryReclaimThresholdPercent": 1},
            {"name": "all", "nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]},
             "cpuReclaimThresholdPercent": 80}
        ]}"#;

    #[test]
    fn label_over_annotation_over_first_matching_entry_over_cluster() {
        let layers = layers(BODY);
        let annotation = [(STRATEGY_ANNOTATION, r#"{"cpuReclaimThresholdPercent":90}"#)];
        for (labels, annotations, cpu, memory) in [
            (&[] as &[(&str, &str)], &[] as &[(&str, &str)], 50, 65),
            (&[("pool", "a")], &[], 70, 65),
            (&[("pool", "b")], &[], 80, 65),
            (&[("pool", "a")], &annotation, 90, 65),
            (&[("pool", "a"), (RATIO_LABELS[0], "0.95")], &annotation, 95, 65),
            (&[(RATIO_LABELS[1], "1.2")], &[], 50, 120),
        ] {
            let (strategy, findings) = layers.effective(&map(labels), &map(annotations));
            let seen = (strategy.enable, strategy.cpu_reclaim_percent, strategy.memory_reclaim_percent);
            assert_eq!(seen, (true, cpu, memory), "{labels:?} {annotations:?}");
            let told: Vec<_> = findings.iter().map(ToString::to_string).collect();
            let without_selector = "colocation-config field nodeConfigs[0] has no nodeSelector and is therefore for no node; write `{}` \
                                    to mean every node";
            assert_eq!(told, [without_selector]);
        }
    }

    #[test]
    fn each_label_sets_its_field() {
        let labels = map(&RATIO_LABELS.map(|label| (label, "0.29")));
        let (strategy, findings) = Layers::default().effective(&labels, &map(&[]));
        let expected = Strategy {
            cpu_reclaim_percent: 29,
            memory_reclaim_percent: 29,
            mid_static_cpu_percent: 29,
            mid_static_memory_percent: 29,
            ..Strategy::default()
        };
        assert_eq!((strategy, findings), (expected, vec![]));
    }

    #[test]
    fn an_invalid_label_is_ignored_and_reported() {
        for text in ["", "abc", "-0.1", "NaN", "1e400", "100.01", "60%"] {
            let labels = map(&[(RATIO_LABELS[0], text)]);
            let (strategy, findings) = Layers::default().effective(&labels, &map(&[]));
            assert_eq!(strategy, Strategy::default(), "{text}");
            assert_eq!(findings.len(), 1, "{text}");
            assert!(
                findings[0].to_string().starts_with("node.koordinator.sh/cpu-reclaim-ratio is `"),
                "{}",
                findings[0]
            );
        }
    }

    #[test]
    fn an_invalid_annotation_is_ignored_as_a_whole_and_reported() {
        for (text, shown) in [
            ("{", "cannot be read"),
            ("", "cannot be read"),
            (r#"{"cpuReclaimThresholdPercent":1e400}"#, "cpuReclaimThresholdPercent cannot be read"),
            (r#"{"cpuReclaimThresholdPercent":70,"degradeTimeMinutes":"15"}"#, "degradeTimeMinutes is `\"15\"`"),
            (r#"{"cpuReclaimThresholdPercent":-70}"#, "cpuReclaimThresholdPercent is `-70`"),
        ] {
            let (strategy, findings) = Layers::default().effective(&map(&[]), &map(&[(STRATEGY_ANNOTATION, text)]));
            assert_eq!(strategy, Strategy::default(), "{text}");
            assert_eq!(findings.len(), 1, "{text}");
            assert!(findings[0].to_string().contains(shown), "{text}: {}", findings[0]);
        }
    }

    #[test]
    fn a_strategy_of_another_policy_is_told_where_it_does_nothing() {
        let text = r#"{"cpuBurst":{"policy":"auto"},"extensions":{"x":{}},"metricAggregatePolicy":{},"somethingNew":7,
                       "nodeConfigs":[{"nodeSelector":{},"memoryQOS":{"enable":true},"cpuReclaimThresholdPercent":70}]}"#;
        let (strategy, findings) = layers(text).effective(&map(&[]), &map(&[]));
        assert_eq!(strategy.cpu_reclaim_percent, 70);
        let fields: Vec<_> = findings.iter().map(|finding| finding.fault.field.as_str()).collect();
        assert_eq!(fields, ["cpuBurst", "nodeConfigs[0].memoryQOS"]);
    }

    #[test]
    fn switching_off_holds_for_entries_that_do_not_say_otherwise() {
        let mut layers = layers(
            r#"{"enable":true,"nodeConfigs":[{"nodeSelector":{"matchLabels":{"pool":"a"}},"cpuReclaimThresholdPercent":1},
                                             {"nodeSelector":{"matchLabels":{"pool":"b"}},"enable":true}]}"#,
        );
        layers.switch_off();
        for (pool, expected) in [("a", false), ("b", true), ("c", false)] {
            let (strategy, _) = layers.effective(&map(&[("pool", pool)]), &map(&[]));
            assert_eq!(strategy.enable, expected, "{pool}");
        }
    }

    #[test]
    fn an_entry_that_cannot_be_used_is_named_and_matches_nothing() {
        let refused = |json: &str| Layers::read(&json::parse(json).unwrap(), &Strategy::default()).unwrap_err().field;
        assert_eq!(refused(r#"{"degradeTimeMinutes":0,"nodeConfigs":[7]}"#), "degradeTimeMinutes");
        let all = r#"{"nodeSelector":{},"cpuReclaimThresholdPercent":1}"#;
        let wrong = r#"{"nodeSelector":{},"enable":true,"degradeTimeMinutes":0}"#;
        for (entries, percent, named) in [
            (format!("[{wrong},{all}]"), 1, "nodeConfigs[0].degradeTimeMinutes "),
            (format!("[7,{all}]"), 1, "nodeConfigs[0] is `7`; write an object"),
            (format!("[{all},{wrong}]"), 1, "nodeConfigs[1].degradeTimeMinutes "),
            ("{}".to_owned(), 60, "nodeConfigs is `{}`; write a list"),
        ] {
            let (strategy, findings) =
                layers(&format!(r#"{{"nodeConfigs":{entries}}}"#)).effective(&map(&[]), &map(&[]));
            assert_eq!((strategy.enable, strategy.cpu_reclaim_percent), (false, percent), "{entries}");
            assert_eq!(findings.len(), 1, "{entries}");
            assert!(findings[0].to_string().contains(named), "{entries}: {}", findings[0]);
        }
        let layers = layers(
            r#"{"nodeConfigs":[{"nodeSelector":{"matchLabels":7},"enable":true},
                               {"nodeSelector":{},"cpuReclaimThresholdPercent":1}]}"#,
        );
        let (strategy, findings) = layers.effective(&map(&[]), &map(&[]));
        assert_eq!((strategy.enable, strategy.cpu_reclaim_percent), (false, 1), "an empty selector matches all");
        assert!(findings[0].to_string().contains("nodeConfigs[0].nodeSelector.matchLabels"), "{}", findings[0]);
    }
}
