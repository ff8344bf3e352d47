//! Which pods are pinned to which CPUs: by the scheduler's annotation, or by a choice of this node that lasts as long as the pod.

use std::collections::BTreeMap;

use cpu_sets::{Cpu, CpuSet};
use qosm_sdk::PodId;
use serde::{Deserialize, Serialize};

use crate::choose::{Ground, Refusal, choose};
use crate::request::{CPUSET_SCHEDULER, Exclusive, NodeRules, Spec};

/// What a pod asks for in terms of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// The pod.
    pub id: PodId,
    /// UID of the pod; choices are remembered by it.
    pub uid: String,
    /// CPUs that the scheduler chose for the pod; empty if it chose none.
    pub given: CpuSet,
    /// Sum of the CPU requests of its containers, in thousandths of a CPU. The scheduler never assigns more.
    pub request_milli: u64,
    /// CPUs that the pod asks this node to pin it to, in thousandths of a CPU; `None` if it does not ask.
    pub cpu_milli: Option<u64>,
    /// How the CPUs are chosen.
    pub spec: Spec,
}

/// The CPUs that a pod is pinned to, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// CPUs from the scheduler's annotation.
    Given(CpuSet),
    /// CPUs that this node chose.
    Chosen(CpuSet),
    /// The pod is not pinned.
    None(Why),
}

/// Why a pod that asks for CPUs of its own is not pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The pod asks for CPUs by the annotation `cpuset-scheduler`, which does not count for its class.
    Class,
    /// The pod does not request a whole number of CPUs, or none.
    NotWhole {
        /// The request, in thousandths of a CPU.
        milli: u64,
    },
    /// The annotation names more CPUs than the pod requests. It is not trusted then, since anyone who can create a pod can write it.
    MoreThanRequested {
        /// Number of CPUs in the annotation.
        given: usize,
        /// The request, in thousandths of a CPU.
        milli: u64,
    },
    /// The annotation names CPUs that are kept from pods, or that the kubelet gave to other containers.
    Kept,
    /// No CPUs can be chosen.
    Refused(Refusal),
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Class => write!(
                f,
                "annotation `{CPUSET_SCHEDULER}` counts for pods of class LSE, LSR or without a class: change the pod's label `koordinator.sh/qosClass` to LSR, or remove the annotation"
            ),
            Self::NotWhole { milli: 0 } => f.write_str("it requests no CPU: request a multiple of 1000m"),
            Self::NotWhole { milli } => {
                write!(
                    f,
                    "it asks for {milli}m of CPU, and only whole CPUs can be its own: request a multiple of 1000m"
                )
            }
            Self::MoreThanRequested { given, milli } => {
                write!(
                    f,
                    "its resource-status has {given} CPUs and it requests {milli}m: a scheduler gives no more than is requested"
                )
            }
            Self::Kept => f.write_str(
                "its resource-status has CPUs that are kept from pods or are the kubelet's, which no scheduler gives",
            ),
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl Pin {
    /// The CPUs that the pod is pinned to; `None` if it is not pinned.
    pub fn cpus(&self) -> Option<&CpuSet> {
        match self {
            Self::Given(cpus) | Self::Chosen(cpus) => Some(cpus),
            Self::None(_) => None,
        }
    }
}

/// The choices of this node, by pod UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placements {
    chosen: BTreeMap<String, CpuSet>,
}

/// The machine, and the CPUs that no pod may be pinned to.
#[derive(Clone, Debug, Default)]
pub struct Machine<'a> {
    /// All online CPUs.
    pub cpus: &'a [Cpu],
    /// Reserved CPUs, CPUs of the class SYSTEM, and CPUs that the kubelet gave away.
    pub kept: CpuSet,
    /// The rules from the node's labels.
    pub rules: NodeRules,
}

impl Wish {
    /// Why the pod's annotation cannot come from the scheduler; `None` if it is plausible.
    pub(crate) fn disbelief(&self, kept: &CpuSet) -> Option<Why> {
        if self.has_too_many() {
            Some(Why::MoreThanRequested { given: self.given.len(), milli: self.request_milli })
        } else {
            self.given.iter().any(|cpu| kept.contains(cpu)).then_some(Why::Kept)
        }
    }

    /// Whether the annotation names more CPUs than the pod requests.
    fn has_too_many(&self) -> bool {
        u64::try_from(self.given.len()).is_ok_and(|given| given > self.request_milli.div_ceil(1000))
    }
}

impl Placements {
    /// The CPUs that pods are pinned to: those of plausible annotations in `wishes`, and all choices of this node.
    pub fn pinned(&self, wishes: &[Wish]) -> CpuSet {
        let given = wishes.iter().filter(|wish| !wish.has_too_many()).flat_map(|wish| wish.given.iter());
        given.chain(self.chosen.values().flat_map(CpuSet::iter)).collect()
    }

    /// Determines what each pod is pinned to. `forget`: whether choices for pods that are not in `wishes` are dropped. It is `false` at the
    /// first evaluation only, when some pods may not be known yet.
    pub fn place(&mut self, machine: &Machine<'_>, wishes: &[Wish], forget: bool) -> BTreeMap<PodId, Pin> {
        let online: CpuSet = machine.cpus.iter().map(|cpu| cpu.id).collect();
        let usable = online.difference(&machine.kept);
        if forget {
            let asks = |uid: &String| {
                wishes.iter().any(|wish| wish.uid == *uid && wish.given.is_empty() && wish.cpu_milli.is_some())
            };
            self.chosen.retain(|uid, _| asks(uid));
        }
        let believed = wishes.iter().filter(|wish| wish.disbelief(&machine.kept).is_none());
        let given: CpuSet = believed.flat_map(|wish| wish.given.iter()).collect();
        // CPUs that the scheduler gave away or that went offline end the choices that contain them.
        let free_of_others = usable.difference(&given);
        self.chosen.retain(|_, cpus| cpus.is_subset(&free_of_others));
        let mut pins = BTreeMap::new();
        for wish in wishes {
            let pin = if wish.given.is_empty() {
                let Some(milli) = wish.cpu_milli else { continue };
                self.choose(machine, wishes, wish, milli, &free_of_others)
            } else {
                wish.disbelief(&machine.kept).map_or_else(|| Pin::Given(wish.given.clone()), Pin::None)
            };
            pins.insert(wish.id, pin);
        }
        pins
    }

    fn choose(&mut self, machine: &Machine<'_>, wishes: &[Wish], wish: &Wish, milli: u64, usable: &CpuSet) -> Pin {
        let count = match usize::try_from(milli / 1000) {
            Ok(count) if milli > 0 && milli.is_multiple_of(1000) => count,
            _ => {
                self.chosen.remove(&wish.uid);
                return Pin::None(Why::NotWhole { milli });
            }
        };
        if let Some(cpus) = self.chosen.get(&wish.uid).filter(|cpus| cpus.len() == count) {
            return Pin::Chosen(cpus.clone());
        }
        // An in-place resize changes the number of CPUs.
        self.chosen.remove(&wish.uid);
        let others: CpuSet = self.chosen.values().flat_map(CpuSet::iter).collect();
        let spec = wish.spec.on(machine.rules);
        let alike = |other: &&Wish| {
            other.id != wish.id && spec.exclusive != Exclusive::None && other.spec.exclusive == spec.exclusive
        };
        let cpus_of = |other: &Wish| match self.chosen.get(&other.uid) {
            Some(cpus) if other.given.is_empty() => cpus.clone(),
            _ => other.given.clone(),
        };
        let ground = Ground {
            machine: machine.cpus,
            free: usable.difference(&others),
            avoided: wishes.iter().filter(alike).flat_map(|other| cpus_of(other).iter().collect::<Vec<_>>()).collect(),
            strategy: machine.rules.strategy,
        };
        match choose(&ground, spec, count) {
            Ok(cpus) => {
                self.chosen.insert(wish.uid.clone(), cpus.clone());
                Pin::Chosen(cpus)
            }
            Err(refusal) => Pin::None(Why::Refused(refusal)),
        }
    }

    /// Serializes the choices to at most 60 KiB. Choices that do not fit are left out, the last UIDs first; they are made anew after a
    /// restart.
    pub fn save(&self) -> Vec<u8> {
        const MAX: usize = 60 << 10;
        let mut saved = Saved { version: VERSION, placements: self.clone() };
        loop {
            let bytes = serde_json::to_vec(&saved).unwrap_or_default();
            if bytes.len() <= MAX || saved.placements.chosen.pop_last().is_none() {
                return bytes;
            }
        }
    }

    /// Reads what [`Placements::save`] wrote; empty bytes give no choices.
    ///
    /// # Errors
    ///
    /// Fails if the bytes cannot be read or have another layout. Start without choices then: pods get other CPUs than they had.
    pub fn restore(bytes: &[u8]) -> Result<Self, String> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let saved: Saved =
            serde_json::from_slice(bytes).map_err(|error| format!("the saved choices cannot be read: {error}"))?;
        match saved.version {
            VERSION => Ok(saved.placements),
            version => Err(format!("the saved choices are of layout {version}, this version reads {VERSION}")),
        }
    }
}

/// Layout that this version writes; other layouts are refused.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Saved {
    version: u32,
    placements: Placements,
}

#[cfg(test)]
mod tests {
    use cpu_sets::pick::machine;
    use proptest::prelude::*;

    use super::*;
    use crate::request::BindPolicy;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).unwrap()
    }

    fn wish(id: u32, given: &str, cpus: u64) -> Wish {
        let given = set(given);
        let request_milli = 1000 * cpus.max(u64::try_from(given.len()).unwrap());
        let cpu_milli = Some(cpus * 1000).filter(|milli| *milli > 0);
        Wish { id, uid: format!("uid-{id}"), given, request_milli, cpu_milli, spec: Spec::default() }
    }

    fn place(placements: &mut Placements, kept: &str, wishes: &[Wish]) -> Vec<String> {
        let cpus = machine(2, 4, 2);
        let machine = Machine { cpus: &cpus, kept: set(kept), rules: NodeRules::default() };
        let pins = placements.place(&machine, wishes, true);
        pins.values()
            .map(|pin| match pin {
                Pin::Given(cpus) => format!("given {cpus}"),
                Pin::Chosen(cpus) => cpus.to_string(),
                Pin::None(why) => why.to_string(),
            })
            .collect()
    }

    #[test]
    fn a_choice_stays_while_its_pod_lives_whoever_comes_and_goes() {
        let mut placements = Placements::default();
        assert_eq!(place(&mut placements, "", &[wish(1, "", 2), wish(2, "", 4)]), ["0-1", "2-5"]);
        assert_eq!(place(&mut placements, "", &[wish(2, "", 4), wish(3, "", 2)]), ["2-5", "0-1"]);
        // Restored from the saved state.
        let mut next = Placements::restore(&placements.save()).unwrap();
        assert_eq!(place(&mut next, "", &[wish(2, "", 4), wish(3, "", 2), wish(4, "", 2)]), ["2-5", "0-1", "6-7"]);
    }

    #[test]
    fn who_writes_an_annotation_gets_no_more_than_a_scheduler_would_give() {
        let mut placements = Placements::default();
        let greedy = Wish { request_milli: 1500, ..wish(1, "0-15", 0) };
        assert_eq!(
            place(&mut placements, "", &[greedy.clone(), wish(2, "", 4)]),
            [
                "its resource-status has 16 CPUs and it requests 1500m: a scheduler gives no more than is requested",
                "0-3"
            ],
            "the others have what they would have without it"
        );
        assert_eq!(place(&mut placements, "", &[Wish { given: set("8-9"), ..greedy }]), ["given 8-9"]);
        assert_eq!(
            place(&mut placements, "4", &[wish(1, "4-5", 0)]),
            ["its resource-status has CPUs that are kept from pods or are the kubelet's, which no scheduler gives"]
        );
    }

    #[test]
    fn pinned_cpus_are_those_of_plausible_annotations_and_of_choices() {
        let mut placements = Placements::default();
        let greedy = Wish { request_milli: 1000, ..wish(3, "12-15", 0) };
        let wishes = [wish(1, "", 2), wish(2, "8-9", 0), greedy];
        assert_eq!(placements.pinned(&wishes), set("8-9"));
        place(&mut placements, "", &wishes);
        assert_eq!(placements.pinned(&wishes), set("8-9").union(&placements.chosen["uid-1"]));
    }

    #[test]
    fn what_the_scheduler_gives_is_given_and_a_choice_makes_way() {
        let mut placements = Placements::default();
        assert_eq!(place(&mut placements, "", &[wish(1, "", 2)]), ["0-1"]);
        assert_eq!(place(&mut placements, "", &[wish(1, "", 2), wish(2, "1-2", 0)]), ["4-5", "given 1-2"]);
        assert_eq!(place(&mut placements, "4", &[wish(1, "", 2), wish(2, "1-2", 0)]), ["6-7", "given 1-2"]);
    }

    #[test]
    fn another_number_is_another_choice_and_no_whole_number_is_none() {
        let mut placements = Placements::default();
        assert_eq!(place(&mut placements, "", &[wish(1, "", 2)]), ["0-1"]);
        assert_eq!(place(&mut placements, "", &[wish(1, "", 4)]), ["0-3"]);
        let half = Wish { cpu_milli: Some(1500), ..wish(1, "", 0) };
        let said = "it asks for 1500m of CPU, and only whole CPUs can be its own: request a multiple of 1000m";
        assert_eq!(place(&mut placements, "", std::slice::from_ref(&half)), [said]);
        let none = Wish { cpu_milli: Some(0), ..wish(1, "", 0) };
        let said = "it requests no CPU: request a multiple of 1000m";
        assert_eq!(place(&mut placements, "", std::slice::from_ref(&none)), [said]);
        assert_eq!(place(&mut placements, "", &[wish(1, "", 17)]), ["only 16 CPUs are free"]);
    }

    #[test]
    fn pods_that_avoid_each_other_lie_on_different_cores() {
        let spec = Spec { bind: BindPolicy::SpreadByPCpus, exclusive: Exclusive::PCpuLevel, ..Spec::default() };
        let apart = |id| Wish { spec, ..wish(id, "", 1) };
        assert_eq!(place(&mut Placements::default(), "", &[apart(1), apart(2), wish(3, "", 2)]), ["0", "2", "4-5"]);
    }

    #[test]
    fn choices_for_pods_that_are_not_known_yet_are_kept_at_the_first_look() {
        let mut placements = Placements::default();
        place(&mut placements, "", &[wish(1, "", 2)]);
        let cpus = machine(2, 4, 2);
        let machine = Machine { cpus: &cpus, ..Machine::default() };
        let pins = placements.place(&machine, &[wish(2, "", 2)], false);
        assert_eq!(pins[&2], Pin::Chosen(set("2-3")));
        assert_eq!(placements.place(&machine, &[wish(1, "", 2)], true)[&1], Pin::Chosen(set("0-1")));
    }

    #[test]
    fn another_layout_is_refused_and_any_number_of_choices_fits() {
        assert_eq!(Placements::restore(&[]), Ok(Placements::default()));
        assert!(Placements::restore(b"{").is_err());
        let error = Placements::restore(br#"{"version": 2, "placements": {"chosen": {}}}"#).unwrap_err();
        insta::assert_snapshot!(error, @"the saved choices are of layout 2, this version reads 1");
        let many = (0..4000).map(|number| (format!("{number:036}"), set("0-1"))).collect();
        let bytes = Placements { chosen: many }.save();
        assert!(bytes.len() <= 60 << 10 && Placements::restore(&bytes).is_ok());
    }

    proptest! {
        #[test]
        fn nobodys_cpus_are_anybody_elses(
            rounds in proptest::collection::vec(proptest::collection::vec((0..6_u32, 0..6_u64), 0..6), 1..5),
        ) {
            let mut placements = Placements::default();
            let cpus = machine(2, 4, 2);
            let machine = Machine { cpus: &cpus, kept: set("7"), rules: NodeRules::default() };
            for round in rounds {
                let by_id: BTreeMap<u32, u64> = round.into_iter().collect();
                let wishes: Vec<Wish> = by_id.iter().map(|(id, cpus)| wish(*id, "", *cpus)).collect();
                let pins = placements.place(&machine, &wishes, true);
                let all: Vec<u32> = pins.values().filter_map(Pin::cpus).flat_map(CpuSet::iter).collect();
                let different: CpuSet = all.iter().copied().collect();
                prop_assert_eq!(all.len(), different.len());
                prop_assert!(!different.contains(7));
                for (id, pin) in &pins {
                    prop_assert!(pin.cpus().is_none_or(|cpus| cpus.len() as u64 == by_id[id]));
                }
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _ = Placements::restore(&bytes);
        }
    }
}
