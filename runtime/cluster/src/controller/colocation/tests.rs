use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::watcher::Event;
use serde_json::json;

use super::*;
use crate::node_report::Urgency;

const CPU: &str = "kubernetes.io/batch-cpu";
/// The API server's clock when the tests begin, in seconds since the epoch.
const BEGUN: i64 = 1_800_000_000;

fn rules() -> ColocationRules {
    ColocationRules {
        publication: PublicationRules { names: [CPU.to_owned()].into(), max_percent_of_capacity: 100 },
        evictions: EvictionRules {
            per_minute: PerMinute { node: 2, namespace: 10, fleet: 10 },
            protected_namespaces: ["kube-system".to_owned()].into(),
            daemon_set_pods: false,
        },
    }
}

fn now(second: u64) -> Now {
    let server = Timestamp::from_second(BEGUN + i64::try_from(second).unwrap()).unwrap();
    Now { running: Duration::from_secs(1000 + second), server }
}

fn node(name: &str, version: u32, annotation: Option<&str>, cpu: Option<&str>) -> NodeView {
    let mut amounts = json!({"cpu": "4", "memory": "8Gi"});
    if let Some(cpu) = cpu {
        amounts[CPU] = cpu.into();
    }
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": version.to_string(),
            "annotations": annotation.map(|names| json!({PUBLISHED: names}))},
        "status": {"capacity": amounts, "allocatable": amounts, "images": [{"sizeBytes": 3}]},
    }))
    .unwrap()
}

/// A report that the agent wrote at second `written`.
fn report(name: &str, written: u64, status: &Value) -> DynamicObject {
    let time = now(written).server.to_string();
    let entry = |manager: &str| json!({"manager": manager, "operation": "Apply", "time": time});
    serde_json::from_value(json!({
        "apiVersion": "qosm.io/v1alpha1", "kind": "NodePolicyReport",
        "metadata": {"name": name, "managedFields": [entry("qosm")]}, "status": status,
    }))
    .unwrap()
}

fn publishes(amount: u64) -> Value {
    json!({"resources": [{"name": CPU, "amount": amount}], "resourcesStaleAfterSeconds": 900})
}

fn evicts(evictions: &[(&str, &str, Urgency)]) -> Value {
    let evictions: Vec<_> = evictions
        .iter()
        .map(|(uid, namespace, urgency)| {
            json!({"uid": uid, "namespace": namespace, "name": uid, "urgency": urgency,
            "policy": "eviction", "reason": "R", "message": "m"})
        })
        .collect();
    json!({"evictions": evictions})
}

/// The jobs, each as a verb and its object.
fn words(jobs: &[Job]) -> Vec<String> {
    jobs.iter()
        .map(|job| match job {
            Job::Publish { node, patch } => format!("publish {node} {}", patch["status"]["capacity"][CPU]),
            Job::PublishZones { node, zones } => format!("zones {node} {zones:?}"),
            Job::Evict { eviction, .. } => format!("evict {}", eviction.uid),
            Job::Look { eviction, .. } => format!("look {}", eviction.uid),
            Job::Answer { node, answer } => {
                let amounts = answer.resources.iter().map(|one| format!("{}:{}", one.amount, one.in_force));
                let outcomes = answer.evictions.iter().map(|one| format!("{}:{:?}", one.uid, one.outcome));
                format!("answer {node} [{}]", amounts.chain(outcomes).collect::<Vec<_>>().join(" "))
            }
        })
        .collect()
}

/// An API server that accepts all patches and ends evictions as `ended` says.
struct World {
    colocation: Colocation,
    version: u32,
    on_node: BTreeMap<String, (Option<String>, Option<String>)>,
    /// The outcome of evictions.
    ended: Ended,
    log: Vec<String>,
}

impl World {
    fn new() -> Self {
        let ended = Ended::Accepted(String::new());
        Self { colocation: Colocation::new(rules()), version: 1, on_node: BTreeMap::new(), ended, log: Vec::new() }
    }

    fn with_node(name: &str, annotation: Option<&str>, cpu: Option<&str>) -> Self {
        let mut world = Self::new();
        world.on_node.insert(name.into(), (annotation.map(String::from), cpu.map(String::from)));
        world.colocation.node(&Event::Apply(node(name, 1, annotation, cpu)), now(0));
        world
    }

    /// Carries out everything that is due at this second, and returns it.
    fn at(&mut self, second: u64) -> Vec<String> {
        let mut happened = Vec::new();
        for _ in 0..20 {
            let jobs = self.colocation.due(now(second));
            if jobs.is_empty() {
                self.log.extend(happened.clone());
                return happened;
            }
            happened.extend(words(&jobs));
            for job in jobs {
                let done = match job {
                    Job::Publish { node: name, patch } => {
                        self.version += 1;
                        let (annotation, cpu) = self.on_node.get_mut(&name).unwrap();
                        let text = |value: &Value| value.as_str().map(String::from);
                        if let Some(names) = patch["metadata"]["annotations"].get(PUBLISHED) {
                            *annotation = text(names);
                        }
                        if let Some(amount) = patch["status"]["capacity"].get(CPU) {
                            *cpu = text(amount);
                        }
                        let node = node(&name, self.version, annotation.as_deref(), cpu.as_deref());
                        Done::Published(name, Ok(Box::new(node)))
                    }
                    Job::PublishZones { node, zones } => Done::PublishedZones(node, zones, Ok(())),
                    Job::Evict { node, eviction, .. } => Done::Evicted(node, eviction.uid, self.ended.clone()),
                    Job::Look { node, eviction } => Done::Looked(node, eviction.uid, false),
                    Job::Answer { node, answer } => Done::Answered(node, answer, Ok(())),
                };
                self.colocation.done(done, now(second));
            }
        }
        unreachable!("it never comes to rest: {happened:?}")
    }

    fn reports(&mut self, name: &str, written: u64, status: &Value) {
        self.colocation.report(&Event::Apply(report(name, written, status)), now(written));
    }
}

#[test]
fn what_a_report_asks_for_is_published_answered_and_left_alone() {
    let mut world = World::with_node("n1", None, None);
    world.reports("n1", 10, &publishes(1500));
    assert_eq!(world.at(10), [r#"publish n1 "1500""#, "zones n1 {}", "answer n1 [1500:true]"]);
    assert_eq!(world.at(11), [""; 0]);
    // A heartbeat of the node, and one of the report.
    world.colocation.node(&Event::Apply(node("n1", 9, Some(CPU), Some("1500"))), now(300));
    let mut same = publishes(1500);
    same["controller"] = json!({"resources": [{"name": CPU, "amount": 1500, "inForce": true, "message": ""}]});
    world.reports("n1", 300, &same);
    assert_eq!(world.at(300), [""; 0]);
    let mut other = publishes(900);
    other["controller"] = same["controller"].clone();
    world.reports("n1", 400, &other);
    assert_eq!(world.at(400), [r#"publish n1 "900""#, "answer n1 [900:true]"]);
}

#[test]
fn nothing_stale_stays_published() {
    let annotated = |world: &mut World| {
        world.reports("n1", 10, &publishes(1500));
        world.at(10);
    };
    // Silent for the report's 900 s, by the monotonic clock.
    let mut world = World::with_node("n1", None, None);
    annotated(&mut world);
    assert_eq!(world.at(909), [""; 0]);
    assert_eq!(world.at(910), ["publish n1 null", "answer n1 []"]);
    assert_eq!(world.at(100_000), [""; 0]);
    // The agent comes back.
    world.reports("n1", 100_001, &publishes(700));
    assert_eq!(world.at(100_001)[0], r#"publish n1 "700""#);

    // An agent whose successor is expected leaves its resources in its last report: they end with its age.
    let mut ended = publishes(1500);
    ended["conditions"] = json!([{"type": "Ready", "status": "False", "reason": "Ended", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let mut world = World::with_node("n1", None, None);
    annotated(&mut world);
    world.colocation.report(&Event::Apply(report("n1", 20, &ended)), now(20));
    assert_eq!(world.at(20), ["answer n1 [1500:true]"]);
    assert_eq!(world.at(919), [""; 0]);
    assert_eq!(world.at(920)[0], "publish n1 null");

    // The report is deleted, or it no longer names the resource.
    for (case, event) in [
        ("deleted", Event::Delete(report("n1", 20, &publishes(1500)))),
        ("the policy is gone", Event::Apply(report("n1", 20, &json!({})))),
        ("it cannot be read", Event::Apply(report("n1", 20, &json!({"resources": 5})))),
    ] {
        let mut world = World::with_node("n1", None, None);
        annotated(&mut world);
        world.colocation.report(&event, now(20));
        assert_eq!(world.at(20)[0], "publish n1 null", "{case}");
        assert_eq!(world.on_node["n1"], (None, None), "{case}");
    }
}

#[test]
fn a_controller_that_begins_withdraws_what_nobody_claims_and_believes_no_old_report() {
    let mut world = World::new();
    for (name, cpu) in [("claimed", "1500"), ("silent", "1500"), ("orphan", "1500")] {
        world.on_node.insert(name.into(), (Some(CPU.into()), Some(cpu.into())));
        world.colocation.node(&Event::InitApply(node(name, 1, Some(CPU), Some(cpu))), now(5000));
    }
    let mut answered = publishes(1500);
    answered["controller"] = json!({"resources": [{"name": CPU, "amount": 1500, "inForce": true, "message": ""}]});
    world.colocation.report(&Event::Init, now(5000));
    world.colocation.report(&Event::InitApply(report("claimed", 4800, &answered)), now(5000));
    world.colocation.report(&Event::InitApply(report("silent", 4000, &answered)), now(5000));
    world.colocation.report(&Event::InitDone, now(5000));
    let happened = world.at(5000);
    assert!(!happened.iter().any(|word| word.starts_with("publish claimed")), "{happened:?}");
    for name in ["silent", "orphan"] {
        assert!(happened.contains(&format!("publish {name} null")), "{happened:?}");
    }
    // A report that is missing in a new list was deleted.
    world.colocation.report(&Event::Init, now(5010));
    world.colocation.report(&Event::InitDone, now(5010));
    assert_eq!(world.at(5010), ["publish claimed null"]);
}

#[test]
fn a_node_that_cannot_be_written_is_tried_again_and_the_report_told() {
    let mut world = World::with_node("n1", None, None);
    world.reports("n1", 0, &publishes(1500));
    let mut tried = Vec::new();
    let mut told = Vec::new();
    for second in 0..200 {
        for job in world.colocation.due(now(second)) {
            match job {
                Job::Publish { node, .. } => {
                    tried.push(second);
                    world.colocation.done(Done::Published(node, Err("no".into())), now(second));
                }
                Job::Answer { node, answer } => {
                    told.push(answer.resources[0].clone());
                    world.colocation.done(Done::Answered(node, answer, Ok(())), now(second));
                }
                other => unreachable!("{other:?}"),
            }
        }
    }
    assert_eq!(tried, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
    assert_eq!(told.len(), 1);
    assert!(!told[0].in_force && told[0].message == "no");
}

#[test]
fn an_older_version_of_a_node_undoes_nothing() {
    let mut world = World::with_node("n1", None, None);
    world.version = 10;
    world.reports("n1", 10, &publishes(1500));
    world.at(10);
    // A late event of the watch.
    world.colocation.node(&Event::Apply(node("n1", 5, None, None)), now(11));
    assert_eq!(world.at(11), [""; 0]);
    // A later change of the Node by another client.
    world.colocation.node(&Event::Apply(node("n1", 99, Some(CPU), Some("1"))), now(12));
    assert_eq!(world.at(12)[0], r#"publish n1 "1500""#);
}

#[test]
fn an_older_version_of_a_report_undoes_nothing() {
    let reported = |written: u64, version: &str, amount: u64| {
        let mut report = report("n1", written, &publishes(amount));
        report.metadata.resource_version = Some(version.to_owned());
        report
    };
    let mut world = World::with_node("n1", None, None);
    world.colocation.report(&Event::Apply(reported(20, "100", 900)), now(20));
    assert_eq!(world.at(20)[0], r#"publish n1 "900""#);
    world.colocation.report(&Event::Apply(reported(10, "99", 1500)), now(21));
    assert_eq!(world.at(21), [""; 0]);
    // A list counts whatever its versions are: those of a restored backup begin again.
    world.colocation.report(&Event::Init, now(30));
    world.colocation.report(&Event::InitApply(reported(10, "99", 1500)), now(30));
    world.colocation.report(&Event::InitDone, now(30));
    assert_eq!(world.at(30)[0], r#"publish n1 "1500""#);
}

#[test]
fn shares_of_numa_nodes_follow_what_stands_on_the_node() {
    let mut world = World::with_node("n1", None, None);
    let mut status = publishes(1500);
    status["resources"][0]["zones"] = json!([{"zone": 0, "amount": 1000}, {"zone": 1, "amount": 500}]);
    world.reports("n1", 10, &status);
    let zones = format!("zones n1 {{{CPU:?}: {{0: 1000, 1: 500}}}}");
    let happened = world.at(10);
    assert!(happened.contains(&zones), "{happened:?}");
    assert_eq!(world.at(310), [zones], "who keeps the object may have written it anew");
    world.reports("n1", 320, &json!({}));
    let happened = world.at(320);
    assert!(happened.contains(&"zones n1 {}".to_owned()), "{happened:?}");
    assert_eq!(world.at(900), [""; 0]);
}

#[test]
fn shares_whose_withdrawal_failed_are_withdrawn_later() {
    // An earlier controller published the resource, and no report has it. The Node's annotation is gone before the shares are.
    let begun = || {
        let mut world = World::with_node("n1", Some(CPU), Some("1500"));
        let jobs = world.colocation.due(now(10));
        assert_eq!(words(&jobs), ["publish n1 null", "zones n1 {}"]);
        let bare = Box::new(node("n1", 2, None, None));
        world.colocation.done(Done::Published("n1".into(), Ok(bare)), now(10));
        (world, jobs)
    };
    let (mut world, _) = begun();
    assert_eq!(world.at(10), [""; 0], "the write of the shares is under way");
    let conflict = Err("the object has been modified".to_owned());
    world.colocation.done(Done::PublishedZones("n1".into(), Zones::new(), conflict), now(10));
    assert_eq!(world.at(14), [""; 0]);
    assert_eq!(world.at(15), ["zones n1 {}"]);
    assert_eq!(world.at(900), [""; 0]);

    let (mut world, jobs) = begun();
    world.colocation.abandoned(&jobs[1], now(10));
    assert_eq!(world.at(10), ["zones n1 {}"]);
    assert_eq!(world.at(900), [""; 0]);
}

#[test]
fn of_an_amount_that_is_bounded_each_numa_node_has_its_part() {
    let mut world = World::with_node("n1", None, None);
    // The node has 4 CPUs.
    let mut status = publishes(6000);
    status["resources"][0]["zones"] = json!([{"zone": 0, "amount": 4000}, {"zone": 1, "amount": 2000}]);
    world.reports("n1", 10, &status);
    let happened = world.at(10);
    assert!(happened.contains(&r#"publish n1 "4000""#.to_owned()), "{happened:?}");
    assert!(happened.contains(&format!("zones n1 {{{CPU:?}: {{0: 2666, 1: 1333}}}}")), "{happened:?}");
    // While a smaller amount is being written, shares are not withdrawn and written again.
    let mut status = publishes(3000);
    status["resources"][0]["zones"] = json!([{"zone": 0, "amount": 2000}, {"zone": 1, "amount": 1000}]);
    world.reports("n1", 20, &status);
    let happened = world.at(20);
    let zones: Vec<_> = happened.iter().filter(|job| job.starts_with("zones")).collect();
    assert_eq!(zones, [&format!("zones n1 {{{CPU:?}: {{0: 2000, 1: 1000}}}}")], "{happened:?}");
}

#[test]
fn a_pod_is_evicted_once_and_looked_for_until_it_is_gone() {
    let mut world = World::with_node("n1", None, None);
    let asked = evicts(&[("a", "batch", Urgency::Soon)]);
    world.reports("n1", 10, &asked);
    assert_eq!(world.at(10), ["evict a", "answer n1 [a:Accepted]"]);
    assert_eq!(world.at(19), [""; 0]);
    assert_eq!(world.at(20), ["look a"]);
    // The report again, with the answer and without.
    world.reports("n1", 21, &asked);
    assert_eq!(world.at(21), ["answer n1 [a:Accepted]"]);
    let jobs = world.colocation.due(now(30));
    assert_eq!(words(&jobs), ["look a"]);
    world.colocation.done(Done::Looked("n1".into(), "a".into(), true), now(30));
    assert_eq!(world.at(30), ["answer n1 [a:Gone]"]);
    assert_eq!(world.at(500), [""; 0]);
    assert_eq!(world.log.iter().filter(|word| *word == "evict a").count(), 1);
    // The eviction leaves the report, and then the answer.
    world.reports("n1", 501, &json!({"controller": {"evictions": [{"uid": "a", "outcome": "gone"}]}}));
    assert_eq!(world.at(501), ["answer n1 []"]);
}

#[test]
fn another_controller_evicts_nobody_again_and_counts_what_was_evicted() {
    let mut world = World::with_node("n1", None, None);
    let at = Time(now(5).server);
    let mut asked =
        evicts(&[("a", "batch", Urgency::Soon), ("b", "batch", Urgency::Soon), ("c", "batch", Urgency::Now)]);
    asked["controller"] = json!({"evictions": [
        {"uid": "a", "outcome": "accepted", "message": "", "at": at},
        {"uid": "b", "outcome": "refused", "message": "a PDB", "at": at},
    ]});
    world.reports("n1", 10, &asked);
    // The budget is two a minute on a node, of which `a` has used one; the urgent one comes first.
    let happened = world.at(10);
    assert_eq!(happened[..2], ["evict c", "look a"]);
    assert_eq!(happened.last().unwrap(), "answer n1 [a:Accepted b:Pending c:Accepted]");
    assert!(!world.at(64).contains(&"evict b".to_owned()));
    assert_eq!(world.at(65)[0], "evict b");
}

#[test]
fn what_a_pod_disruption_budget_forbids_is_tried_again_with_longer_pauses_and_costs_no_budget() {
    let mut world = World::with_node("n1", None, None);
    world.ended = Ended::Refused("a PodDisruptionBudget forbids it".into());
    world.reports("n1", 0, &evicts(&[("a", "batch", Urgency::Soon)]));
    let mut tried = Vec::new();
    for second in 0..200 {
        let happened = world.at(second);
        tried.extend(happened.iter().any(|word| word == "evict a").then_some(second));
        let told = happened.iter().filter(|word| word.starts_with("answer")).count();
        assert_eq!(told, usize::from(second == 0), "a refusal that stays is told once: {happened:?}");
    }
    assert_eq!(tried, [0, 5, 15, 35, 75, 135, 195]);
    world.ended = Ended::Accepted(String::new());
    world.reports("n1", 200, &evicts(&[("x", "batch", Urgency::Soon), ("y", "batch", Urgency::Soon)]));
    assert_eq!(world.at(200)[..2], ["evict x", "evict y"]);
}

#[test]
fn what_no_time_makes_right_is_tried_once_or_never() {
    let mut world = World::with_node("n1", None, None);
    world.ended = Ended::RefusedForGood("it stands on n2".into());
    world.reports("n1", 0, &evicts(&[("a", "batch", Urgency::Now), ("s", "kube-system", Urgency::Now)]));
    assert_eq!(world.at(0), ["evict a", "answer n1 [s:Refused]", "answer n1 [a:Refused s:Refused]"]);
    assert_eq!(world.at(300), [""; 0]);
}

#[test]
fn an_old_report_evicts_nobody() {
    let mut world = World::with_node("n1", None, None);
    let asked = evicts(&[("a", "batch", Urgency::Now)]);
    world.colocation.report(&Event::InitApply(report("n1", 0, &asked)), now(600));
    assert_eq!(world.at(600), [""; 0]);
    world.reports("n1", 601, &asked);
    assert_eq!(world.at(601)[0], "evict a");
    // The age at which resources become stale does not matter for evictions.
    let mut soon_stale = evicts(&[("b", "batch", Urgency::Now)]);
    soon_stale["resourcesStaleAfterSeconds"] = 2.into();
    world.colocation.report(&Event::Apply(report("n1", 602, &soon_stale)), now(610));
    assert_eq!(world.at(610)[0], "evict b");
}

#[test]
fn budgets_hold_over_nodes_and_are_told_with_their_end() {
    let mut world = World::with_node("n1", None, None);
    let all: Vec<_> = ["a", "b", "c"].map(|uid| (uid, "batch", Urgency::Soon)).to_vec();
    world.reports("n1", 0, &evicts(&all));
    assert_eq!(
        world.at(0),
        ["evict a", "evict b", "answer n1 [c:Pending]", "answer n1 [a:Accepted b:Accepted c:Pending]"]
    );
    let message = world.colocation.nodes["n1"].evictions["c"].answer.clone().unwrap().message;
    assert!(message.contains("no more than 2 evictions a minute on this node"), "{message}");
    assert!(!world.at(59).contains(&"evict c".to_owned()));
    assert!(world.at(60).contains(&"evict c".to_owned()));
}

#[test]
fn a_place_in_a_budget_that_is_given_back_goes_to_whoever_waits() {
    let mut one = rules();
    one.evictions.per_minute.fleet = 1;
    let mut world = World { colocation: Colocation::new(one), ..World::with_node("n1", None, None) };
    world.on_node.insert("n2".into(), (None, None));
    world.colocation.node(&Event::Apply(node("n2", 1, None, None)), now(0));
    world.reports("n1", 0, &evicts(&[("a", "batch", Urgency::Soon)]));
    world.reports("n2", 0, &evicts(&[("b", "batch", Urgency::Soon)]));
    let jobs = world.colocation.due(now(0));
    assert_eq!(words(&jobs), ["evict a", "answer n2 [b:Pending]"]);
    let refused = Ended::Refused("a PodDisruptionBudget forbids it".into());
    world.colocation.done(Done::Evicted("n1".into(), "a".into(), refused), now(1));
    let happened = world.at(1);
    assert!(happened.contains(&"evict b".to_owned()), "{happened:?}");
    // `a` is tried again, and waits for `b`'s minute now.
    assert_eq!(world.at(6), ["answer n1 [a:Pending]"]);
    assert_eq!(world.at(61)[0], "evict a");
}

#[test]
fn a_budget_of_none_refuses() {
    let mut none = rules();
    none.evictions.per_minute.namespace = 0;
    let mut world = World { colocation: Colocation::new(none), ..World::with_node("n1", None, None) };
    world.reports("n1", 0, &evicts(&[("a", "batch", Urgency::Now)]));
    assert_eq!(world.at(0), ["answer n1 [a:Refused]"]);
    let message = world.colocation.nodes["n1"].evictions["a"].answer.clone().unwrap().message;
    assert!(message.contains("perMinute.namespace"), "{message}");
    assert_eq!(world.at(600), [""; 0], "it is told once");
}

#[test]
fn a_job_that_was_not_begun_is_due_again() {
    let mut world = World::with_node("n1", None, None);
    let mut both = evicts(&[("a", "batch", Urgency::Soon), ("b", "batch", Urgency::Soon)]);
    both["resources"] = publishes(5)["resources"].clone();
    world.reports("n1", 0, &both);
    let jobs = world.colocation.due(now(0));
    assert_eq!(words(&jobs).len(), 3, "{jobs:?}");
    jobs.iter().for_each(|job| world.colocation.abandoned(job, now(1)));
    let again = world.colocation.due(now(1));
    assert_eq!(words(&again), words(&jobs), "the budget has them back as well");
}

#[test]
fn nodes_that_are_gone_are_forgotten() {
    let mut world = World::with_node("n1", None, None);
    world.reports("n1", 0, &publishes(5));
    world.colocation.node(&Event::Delete(node("n1", 3, None, None)), now(1));
    world.colocation.report(&Event::Delete(report("n1", 0, &json!({}))), now(1));
    assert!(world.colocation.nodes.is_empty());
    assert_eq!(world.at(2), [""; 0]);
}
