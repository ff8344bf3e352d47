//! A node over time, container by container: numbers for charts, and a mark for each change of what is held.
//!
//! Each moment repeats the reasons of everything that is held; a history has them only where they change. So hours of a full node fit
//! into some tens of megabytes.

mod origin;
mod tally;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use qosm_agent::report::{HeldUsage, PolicyUsage, RemarkUsage};
use qosm_model::knob::Level;
use serde::Serialize;

use self::origin::Origins;
pub use self::origin::{Origin, Version};
pub use self::tally::Compared;
use self::tally::Tallies;
use crate::moment::{Moment, Row};

/// A node over time.
#[derive(Debug, Default)]
pub struct History {
    /// When each moment ended, in milliseconds since the epoch; without a date since the recording began.
    times: Vec<i64>,
    has_date: bool,
    busy_cpus: Vec<Option<f32>>,
    memory_used_mib: Vec<Option<f32>>,
    cpus: u32,
    memory_bytes: Option<u64>,
    containers: Vec<Series>,
    places: HashMap<String, usize>,
    origins: Origins,
    /// The policies of the last moment.
    policies: Vec<PolicyUsage>,
    /// Maximum number of moments that are kept.
    most: usize,
}

/// A container over time. Each line of numbers is as long as the history.
#[derive(Debug, Default)]
struct Series {
    last: Row,
    is_here: bool,
    cpus: Vec<Option<f32>>,
    quota_cpus: Vec<Option<f32>>,
    baseline_cpus: Vec<Option<f32>>,
    throttled_percent: Vec<Option<f32>>,
    memory_mib: Vec<Option<f32>>,
    waits_cpu_percent: Vec<Option<f32>>,
    waits_memory_percent: Vec<Option<f32>>,
    waits_io_percent: Vec<Option<f32>>,
    marks: Vec<Mark>,
    tallies: Tallies,
}

/// A decision, or the end of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// When it happened, in the unit of the history's times.
    pub time: i64,
    /// `holds`, `gives up` or `not done`.
    pub kind: &'static str,
    /// The knob.
    pub knob: String,
    /// Level of the knob: `container`, `pod` or `tier`.
    pub level: Cow<'static, str>,
    /// The value that the knob has from then on, or the baseline that it was given back.
    pub value: String,
    /// The policy, module and configuration that the decision comes from.
    pub origin: Arc<Origin>,
    /// Why.
    pub reason: String,
}

/// A mark as it is sent to the page. Many marks share an origin, which is sent once.
#[derive(Debug, Serialize)]
struct Marked<'a> {
    time: i64,
    kind: &'static str,
    knob: &'a str,
    level: &'a str,
    value: &'a str,
    /// Index of its origin in the list of origins.
    origin: usize,
    reason: &'a str,
}

/// The node and all containers, for a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview<'a> {
    /// When each moment ended, in milliseconds since the epoch; without a date since the recording began.
    times: &'a [i64],
    has_date: bool,
    cpus: u32,
    busy_cpus: &'a [Option<f32>],
    memory_bytes: Option<u64>,
    memory_used_mib: &'a [Option<f32>],
    containers: Vec<Listed<'a>>,
    policies: &'a [PolicyUsage],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed<'a> {
    name: String,
    is_here: bool,
    #[serde(flatten)]
    row: &'a Row,
    why: String,
    /// Highest share of throttled periods in one moment, in percent.
    most_throttled_percent: Option<f32>,
}

/// One container, for charts.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Container<'a> {
    times: &'a [i64],
    cpus: &'a [Option<f32>],
    quota_cpus: &'a [Option<f32>],
    baseline_cpus: &'a [Option<f32>],
    throttled_percent: &'a [Option<f32>],
    memory_mib: &'a [Option<f32>],
    waits_cpu_percent: &'a [Option<f32>],
    waits_memory_percent: &'a [Option<f32>],
    waits_io_percent: &'a [Option<f32>],
    origins: Vec<&'a Origin>,
    marks: Vec<Marked<'a>>,
    /// What shadows asked for here, and how often they agreed.
    compared: Vec<Compared<'a>>,
    now: &'a Row,
}

impl History {
    /// Creates an empty history that keeps at most `most` moments.
    pub fn keeping(most: usize) -> Self {
        Self { most: most.max(2), ..Self::default() }
    }

    /// Adds the next moment. If there are too many, the older half is dropped, so that most additions are cheap.
    pub fn take(&mut self, moment: Moment) {
        if self.times.len() >= self.most {
            self.forget(self.most / 2);
        }
        let time = moment.time.parse::<Timestamp>().map_or(0, Timestamp::as_millisecond);
        let before = self.times.len();
        self.times.push(time);
        self.busy_cpus.push(moment.busy_cpus.map(short));
        self.memory_used_mib.push(moment.memory_used_bytes.map(mebibytes));
        self.has_date = moment.has_date;
        (self.cpus, self.memory_bytes) = (moment.cpus, moment.memory_bytes);
        self.containers.iter_mut().for_each(|series| series.is_here = false);
        self.origins.begin(&moment.policies);
        let stays = |shadow: &str| tally::stays(shadow, &self.policies, &moment.policies);
        self.containers.iter_mut().for_each(|series| series.tallies.retain(stays));
        self.policies = moment.policies;
        for row in moment.containers {
            let name = row.name();
            let place = *self.places.entry(name).or_insert(self.containers.len());
            if place == self.containers.len() {
                self.containers.push(Series::beginning_after(before));
            }
            if let Some(series) = self.containers.get_mut(place) {
                series.take(time, row, &mut self.origins);
            }
        }
        let gone = self.containers.iter_mut().filter(|series| !series.is_here);
        gone.for_each(|series| series.lines().for_each(|line| line.push(None)));
    }

    /// Drops the oldest moments, with their marks and the containers that were seen only in them.
    fn forget(&mut self, moments: usize) {
        let moments = moments.min(self.times.len());
        self.times.drain(..moments);
        self.busy_cpus.drain(..moments);
        self.memory_used_mib.drain(..moments);
        let since = self.times.first().copied().unwrap_or(i64::MIN);
        for series in &mut self.containers {
            series.lines().for_each(|line| drop(line.drain(..moments)));
            series.marks.retain(|mark| mark.time >= since);
        }
        self.containers.retain(|series| series.is_here || series.memory_mib.iter().any(Option::is_some));
        self.places = self.containers.iter().enumerate().map(|(place, series)| (series.last.name(), place)).collect();
        self.origins.forget_unused();
    }

    /// Number of moments.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there are no moments.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// The node, and a line for each container.
    pub fn overview(&self) -> Overview<'_> {
        let listed = |series: &'_ Series| -> (String, Option<f32>) {
            let most = series.throttled_percent.iter().flatten().copied().reduce(f32::max);
            (series.last.name(), most)
        };
        let containers = self
            .containers
            .iter()
            .map(|series| {
                let (name, most_throttled_percent) = listed(series);
                Listed {
                    name,
                    is_here: series.is_here,
                    row: &series.last,
                    why: crate::table::why(&series.last),
                    most_throttled_percent,
                }
            })
            .collect();
        Overview {
            times: &self.times,
            has_date: self.has_date,
            cpus: self.cpus,
            busy_cpus: &self.busy_cpus,
            memory_bytes: self.memory_bytes,
            memory_used_mib: &self.memory_used_mib,
            containers,
            policies: &self.policies,
        }
    }

    /// The container `namespace/pod/container`; `None` if the history does not have it.
    pub fn container(&self, name: &str) -> Option<Container<'_>> {
        let series = self.containers.get(*self.places.get(name)?)?;
        let (origins, marks) = series.marked();
        Some(Container {
            times: &self.times,
            cpus: &series.cpus,
            quota_cpus: &series.quota_cpus,
            baseline_cpus: &series.baseline_cpus,
            throttled_percent: &series.throttled_percent,
            memory_mib: &series.memory_mib,
            waits_cpu_percent: &series.waits_cpu_percent,
            waits_memory_percent: &series.waits_memory_percent,
            waits_io_percent: &series.waits_io_percent,
            origins,
            marks,
            compared: series.tallies.compared(&series.last.shadowed),
            now: &series.last,
        })
    }
}

impl Series {
    /// Creates a series for a container that was not there in the first `moments` moments.
    fn beginning_after(moments: usize) -> Self {
        let mut series = Self::default();
        series.lines().for_each(|line| line.resize(moments, None));
        series
    }

    fn lines(&mut self) -> impl Iterator<Item = &mut Vec<Option<f32>>> {
        [
            &mut self.cpus,
            &mut self.quota_cpus,
            &mut self.baseline_cpus,
            &mut self.throttled_percent,
            &mut self.memory_mib,
            &mut self.waits_cpu_percent,
            &mut self.waits_memory_percent,
            &mut self.waits_io_percent,
        ]
        .into_iter()
    }

    /// The marks, and their origins, each once.
    fn marked(&self) -> (Vec<&Origin>, Vec<Marked<'_>>) {
        let mut origins = Vec::new();
        let mut places: HashMap<*const Origin, usize> = HashMap::new();
        let marks = self.marks.iter().map(|mark| {
            let origin = *places.entry(Arc::as_ptr(&mark.origin)).or_insert_with(|| {
                origins.push(mark.origin.as_ref());
                origins.len() - 1
            });
            let Mark { time, kind, knob, level, value, origin: _, reason } = mark;
            Marked { time: *time, kind, knob, level, value, origin, reason }
        });
        let marks = marks.collect();
        (origins, marks)
    }

    fn take(&mut self, time: i64, row: Row, origins: &mut Origins) {
        let wait = |of: fn(&crate::moment::Pressure) -> f64| row.pressure.as_ref().map(|pressure| short(of(pressure)));
        let numbers = [
            row.cpus.map(short),
            row.quota.and_then(|quota| quota.cpus).map(short),
            row.quota.and_then(|quota| quota.baseline_cpus).map(short),
            row.throttled_percent.map(short),
            row.memory_bytes.map(mebibytes),
            wait(|wait| wait.cpu_percent),
            wait(|wait| wait.memory_percent),
            wait(|wait| wait.io_percent),
        ];
        self.lines().zip(numbers).for_each(|(line, number)| line.push(number));
        self.mark(time, &row, origins);
        self.tallies.take(&row.shadowed);
        (self.last, self.is_here) = (row, true);
    }

    /// Adds marks for settings that are new or have another value, for settings that ended, and for new remarks.
    fn mark(&mut self, time: i64, row: &Row, origins: &mut Origins) {
        // The layers are those of the setting: a setting that ends has the layers that it had.
        let mut of = |kind, held: &HeldUsage, is_own: bool, value: String, reason: &str, at: &Row| Mark {
            time,
            kind,
            knob: held.knob.clone().into_owned(),
            level: if is_own { Level::Container } else { Level::Pod }.as_str().into(),
            value,
            origin: origins.of(&held.policy, at.configured_by.get(&held.policy)),
            reason: reason.to_owned(),
        };
        for (held, is_own) in row.held_where() {
            let is_same = |before: &HeldUsage| {
                (&before.knob, before.value, &before.policy) == (&held.knob, held.value, &held.policy)
            };
            if !self.last.held_where().any(|(before, was_own)| was_own == is_own && is_same(before)) {
                self.marks.push(of("holds", held, is_own, held.value.to_string(), &held.reason, row));
            }
        }
        for (before, was_own) in self.last.held_where() {
            if !row.held_where().any(|(held, is_own)| is_own == was_own && held.knob == before.knob) {
                let baseline = before.baseline.to_string();
                self.marks.push(of("gives up", before, was_own, baseline, "no policy wants it any more", &self.last));
            }
        }
        for remark in &row.remarks {
            let is_known = |before: &RemarkUsage| {
                (&before.knob, &before.level, &before.policy) == (&remark.knob, &remark.level, &remark.policy)
            };
            if !self.last.remarks.iter().any(is_known) {
                // A pod's layers do not configure its tier.
                let layers = row.configured_by.get(&remark.policy).filter(|_| remark.level != "tier");
                self.marks.push(Mark {
                    time,
                    kind: "not done",
                    knob: remark.knob.clone(),
                    level: remark.level.clone(),
                    value: String::new(),
                    origin: origins.of(&remark.policy, layers),
                    reason: remark.why.clone(),
                });
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "for the eye")]
fn short(number: f64) -> f32 {
    number as f32
}

#[expect(clippy::cast_precision_loss, reason = "for the eye")]
fn mebibytes(bytes: u64) -> f32 {
    (bytes >> 10) as f32 / 1024.0
}

#[cfg(test)]
mod tests {
    use qosm_agent::report::NodeUsage;

    use super::*;
    use crate::moment::tests::node;

    fn at(seconds: u64) -> Moment {
        let time = Timestamp::from_second(i64::try_from(seconds).unwrap()).unwrap().to_string();
        Moment { time, ..Moment::between(&node(seconds - 2), &node(seconds)) }
    }

    /// 25 hours of a recording that begins at `start`.
    fn of_recording(start: Timestamp) -> serde_json::Value {
        let look = |seconds: u64| {
            let since = jiff::SignedDuration::from_secs(seconds.try_into().unwrap());
            NodeUsage { time: (start + since).to_string(), ..node(seconds) }
        };
        let mut history = History::keeping(100);
        history.take(Moment::between(&look(0), &look(90_000)));
        serde_json::to_value(history.overview()).unwrap()
    }

    #[test]
    fn a_change_is_marked_once_with_its_reason() {
        let mut history = History::keeping(100);
        for seconds in [2, 4, 6] {
            history.take(at(seconds));
        }
        let mut changed = at(8);
        changed.containers[1].held = changed.containers[1].held[1..].into();
        changed.containers[1].own_held = 1;
        changed.containers[1].remarks.clear();
        history.take(changed);
        let container = serde_json::to_value(history.container("shop/web/app").unwrap()).unwrap();
        let marks: Vec<String> = container["marks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|mark| {
                format!("{} {} {} {}", mark["time"], mark["kind"], mark["knob"], mark["value"]).replace('"', "")
            })
            .collect();
        assert_eq!(
            marks,
            [
                "2000 holds cpu.quota 150000",
                "2000 holds memory.low 536870912",
                "2000 not done cpu.quota ",
                "8000 gives up cpu.quota 100000"
            ]
        );
        assert_eq!(container["cpus"].as_array().unwrap().len(), 4);
        assert!(history.container("shop/web").is_none());
    }

    /// Marks as they are sent, each with its origin.
    fn marks(history: &History, container: &str) -> Vec<String> {
        let container = serde_json::to_value(history.container(container).unwrap()).unwrap();
        let text = |mark: &serde_json::Value| {
            let origin = &container["origins"][usize::try_from(mark["origin"].as_u64().unwrap()).unwrap()];
            let layers = origin["configuredBy"].as_array().unwrap();
            let layers: Vec<_> = layers.iter().map(|layer| layer.as_str().unwrap()).collect();
            let version = ["policy", "module", "digest"].map(|field| origin[field].as_str().unwrap());
            format!("{} {}: {} [{}]", mark["kind"], mark["knob"], version.join(" "), layers.join(", ")).replace('"', "")
        };
        container["marks"].as_array().unwrap().iter().map(text).collect()
    }

    #[test]
    fn a_mark_says_which_module_and_which_layers_it_comes_from() {
        let mut history = History::keeping(100);
        history.take(at(2));
        let burst = "cpu-burst cpu-burst@1.0.0 sha256:01 [annotation koordinator.sh/cpuBurst, the cluster's]";
        let memory = "memory-qos memory-qos@1.0.0 sha256:02 []";
        let expected = [
            format!("holds cpu.quota: {burst}"),
            format!("holds memory.low: {memory}"),
            format!("not done cpu.quota: {burst}"),
        ];
        assert_eq!(marks(&history, "shop/web/app"), expected);
        let container = serde_json::to_value(history.container("shop/web/app").unwrap()).unwrap();
        assert_eq!(container["origins"].as_array().unwrap().len(), 2, "each is sent once");
    }

    #[test]
    fn a_mark_keeps_the_digest_of_its_time() {
        let mut history = History::keeping(100);
        history.take(at(2));
        let mut swapped = at(4);
        swapped.policies[0].digest = "sha256:09".into();
        let mut held = swapped.containers[1].held.to_vec();
        held[0].value = qosm_agent::report::WireValue::Number(160_000);
        swapped.containers[1].held = held.into();
        history.take(swapped);
        // The policy is unloaded: the mark has the module that ran last, and the layers that the pod had last.
        let mut unloaded = at(6);
        unloaded.policies.remove(0);
        unloaded.containers[1].held = [].into();
        unloaded.containers[1].configured_by = Arc::default();
        history.take(unloaded);
        let marks = marks(&history, "shop/web/app");
        let of_quota: Vec<_> = marks.iter().filter(|mark| mark.contains(" cpu.quota: ")).collect();
        let layers = "[annotation koordinator.sh/cpuBurst, the cluster's]";
        let expected = [
            format!("holds cpu.quota: cpu-burst cpu-burst@1.0.0 sha256:01 {layers}"),
            format!("not done cpu.quota: cpu-burst cpu-burst@1.0.0 sha256:01 {layers}"),
            format!("holds cpu.quota: cpu-burst cpu-burst@1.0.0 sha256:09 {layers}"),
            format!("gives up cpu.quota: cpu-burst cpu-burst@1.0.0 sha256:09 {layers}"),
        ];
        assert_eq!(of_quota, expected.iter().collect::<Vec<_>>());
    }

    #[test]
    fn an_agent_that_does_not_say_its_modules_leaves_them_empty() {
        let mut history = History::keeping(100);
        let older = Moment { policies: Vec::new(), ..at(2) };
        history.take(older);
        assert_eq!(marks(&history, "shop/web/app")[1], "holds memory.low: memory-qos   []");
    }

    #[test]
    fn many_marks_share_few_origins_and_those_of_the_past_go() {
        let mut history = History::keeping(10);
        for step in 1..200_u64 {
            let mut moment = at(step * 2);
            moment.policies[0].digest = format!("sha256:{}", step / 20);
            let mut held = moment.containers[1].held.to_vec();
            held[0].value = qosm_agent::report::WireValue::Number(i64::try_from(step).unwrap());
            moment.containers[1].held = held.into();
            history.take(moment);
            assert!(history.origins.len() <= 3, "{} origins", history.origins.len());
        }
        let series = &history.containers[history.places["shop/web/app"]];
        assert!(series.marks.len() >= history.len());
    }

    #[test]
    fn a_shadow_is_counted_beside_what_is_asked_for_in_earnest() {
        let mut history = History::keeping(100);
        let compared = |history: &History| {
            let container = serde_json::to_value(history.container("shop/web/app").unwrap()).unwrap();
            let text = |row: &serde_json::Value| {
                let of = |field: &str| row[field].to_string().replace('"', "");
                ["knob", "kind", "inForce", "active", "wanted", "agreed", "differed"].map(of).join(" ")
            };
            container["compared"].as_array().unwrap().iter().map(text).collect::<Vec<_>>()
        };
        history.take(at(2));
        history.take(at(4));
        assert_eq!(compared(&history), ["cpu.burst agrees null 7 7 2 0", "cpu.quota differs 150000 150000 200000 0 2"]);
        let mut quiet = at(6);
        quiet.containers[1].shadowed = quiet.containers[1].shadowed[..1].into();
        history.take(quiet);
        assert_eq!(compared(&history)[1], "cpu.quota null null null null 0 2", "what was, stays");
        let mut swapped = at(8);
        swapped.policies[2].digest = "sha256:0a".into();
        history.take(swapped);
        assert_eq!(compared(&history)[0], "cpu.burst agrees null 7 7 1 0", "another module begins anew");
        let mut ended = at(10);
        ended.policies.remove(2);
        ended.containers[1].shadowed = [].into();
        history.take(ended);
        assert_eq!(compared(&history), Vec::<String>::new());
    }

    #[test]
    fn a_pod_and_its_container_may_hold_the_same_knob() {
        let mut history = History::keeping(100);
        let both = |seconds| {
            let mut moment = at(seconds);
            let quota = moment.containers[1].held[0].clone();
            moment.containers[1].held = [quota.clone(), quota].into();
            moment.containers[1].own_held = 1;
            moment
        };
        history.take(both(2));
        let mut without = both(4);
        without.containers[1].held = without.containers[1].held[..1].into();
        history.take(without);
        let series = &history.containers[history.places["shop/web/app"]];
        let marks: Vec<_> = series.marks.iter().map(|mark| (mark.time, mark.kind, &*mark.level)).collect();
        assert_eq!(
            marks,
            [
                (2000, "holds", "container"),
                (2000, "holds", "pod"),
                (2000, "not done", "container"),
                (4000, "gives up", "pod")
            ]
        );
    }

    #[test]
    fn a_container_its_pod_and_its_tier_may_each_lack_the_same_knob() {
        let mut history = History::keeping(100);
        let with = |seconds, levels: &[&'static str]| {
            let mut moment = at(seconds);
            let remark = moment.containers[1].remarks[0].clone();
            moment.containers[1].held = [].into();
            moment.containers[1].remarks =
                levels.iter().map(|level| RemarkUsage { level: (*level).into(), ..remark.clone() }).collect();
            moment
        };
        history.take(with(2, &["pod"]));
        history.take(with(4, &["container", "pod"]));
        history.take(with(6, &["container", "pod", "tier"]));
        let web = serde_json::to_value(history.container("shop/web/app").unwrap()).unwrap();
        let marks = web["marks"].as_array().unwrap().iter();
        let marks: Vec<_> = marks.map(|mark| (mark["time"].as_i64(), mark["level"].as_str())).collect();
        assert_eq!(marks, [(Some(2000), Some("pod")), (Some(4000), Some("container")), (Some(6000), Some("tier"))]);
    }

    #[test]
    fn a_recording_with_a_time_has_dates() {
        let overview = of_recording("2026-11-25T23:00:00Z".parse().unwrap());
        assert_eq!(overview["hasDate"], true);
        assert_eq!(overview["times"], serde_json::json!([1_795_737_600_000_i64]), "2026-11-27T00:00:00Z");
    }

    #[test]
    fn a_recording_without_a_time_counts_from_its_beginning() {
        let overview = of_recording(Timestamp::UNIX_EPOCH);
        assert_eq!(overview["hasDate"], false);
        assert_eq!(overview["times"], serde_json::json!([90_000_000]), "25 hours");
    }

    #[test]
    fn who_comes_later_or_goes_has_gaps() {
        let mut history = History::keeping(100);
        let mut without = at(2);
        without.containers.remove(1);
        history.take(without);
        history.take(at(4));
        let mut gone = at(6);
        gone.containers.remove(1);
        history.take(gone);
        let web = serde_json::to_value(history.container("shop/web/app").unwrap()).unwrap();
        assert_eq!(web["cpus"], serde_json::json!([null, 1.5, null]));
        let overview = serde_json::to_value(history.overview()).unwrap();
        let here: Vec<bool> =
            overview["containers"].as_array().unwrap().iter().map(|one| one["isHere"].as_bool().unwrap()).collect();
        assert_eq!(here, [true, false]);
    }

    #[test]
    fn the_past_is_bounded() {
        let mut history = History::keeping(10);
        for step in 1..200 {
            history.take(at(step * 2));
            assert!(history.len() <= 10);
            let overview = serde_json::to_value(history.overview()).unwrap();
            assert_eq!(overview["times"].as_array().unwrap().len(), history.len());
        }
        let web = serde_json::to_value(history.container("shop/web/app").unwrap()).unwrap();
        assert_eq!(web["memoryMib"].as_array().unwrap().len(), history.len());
    }
}
