//! Properties that hold for all requests of pods and all machines.

use std::collections::{BTreeMap, BTreeSet};

use cpu_sets::pick::machine;
use cpu_sets::{Cpu, CpuSet};
use cpu_topology::assign::{Assigned, Manager, Node, Pod, assign, pinned};
use cpu_topology::placement::{Machine, Pin, Placements, Wish};
use cpu_topology::pools::{Pools, Taken};
use cpu_topology::request::{BindPolicy, Exclusive, NodeRules, NumaPolicy, NumaStrategy, Spec};
use proptest::collection::vec;
use proptest::prelude::*;
use qosm_sdk::{KubeQos, QosClass};

fn set(of: u32) -> impl Strategy<Value = CpuSet> {
    vec(0..of + 2, 0..6).prop_map(|cpus| cpus.into_iter().collect())
}

fn spec() -> impl Strategy<Value = Spec> {
    let bind = prop_oneof![Just(BindPolicy::Default), Just(BindPolicy::FullPCpus), Just(BindPolicy::SpreadByPCpus)];
    let exclusive = prop_oneof![Just(Exclusive::None), Just(Exclusive::PCpuLevel), Just(Exclusive::NumaNodeLevel)];
    let numa = prop::option::of(prop_oneof![
        Just(NumaPolicy::BestEffort),
        Just(NumaPolicy::Restricted),
        Just(NumaPolicy::SingleNumaNode)
    ]);
    (bind, any::<bool>(), exclusive, numa).prop_map(|(bind, is_required, exclusive, numa)| Spec {
        bind,
        is_required,
        exclusive,
        numa,
    })
}

fn rules() -> impl Strategy<Value = NodeRules> {
    let strategy = prop_oneof![
        Just(NumaStrategy::MostAllocated),
        Just(NumaStrategy::LeastAllocated),
        Just(NumaStrategy::DistributeEvenly)
    ];
    (spec(), strategy).prop_map(|(spec, strategy)| NodeRules { bind: spec.bind, strategy, numa: spec.numa })
}

fn class() -> impl Strategy<Value = Option<QosClass>> {
    prop::option::of(prop_oneof![
        Just(QosClass::Lse),
        Just(QosClass::Lsr),
        Just(QosClass::Ls),
        Just(QosClass::Be),
        Just(QosClass::System)
    ])
}

#[derive(Clone, Debug)]
struct Situation {
    cpus: Vec<Cpu>,
    kept: CpuSet,
    rules: NodeRules,
    pods: BTreeMap<u32, Pod>,
    wishes: Vec<Wish>,
}

fn situation() -> impl Strategy<Value = Situation> {
    (1..3_u32, 1..5_u32, 1..3_u32).prop_flat_map(|(nodes, cores, threads)| {
        let cpus = machine(nodes, cores, threads);
        let of = nodes * cores * threads;
        let kube_qos = prop_oneof![Just(KubeQos::Guaranteed), Just(KubeQos::Burstable), Just(KubeQos::BestEffort)];
        let pod = (
            class(),
            kube_qos,
            prop::option::weighted(0.2, set(of)),
            prop_oneof![0..6_u64, Just(0)],
            spec(),
            vec(0..3_u32, 0..2),
        );
        (Just(cpus), set(of), rules(), vec(pod, 0..7)).prop_map(|(cpus, kept, rules, all)| {
            let ids = 1_u32..;
            let (mut pods, mut wishes) = (BTreeMap::new(), Vec::new());
            for (id, (class, kube_qos, given, cpu, spec, nodes)) in ids.zip(all) {
                pods.insert(id, Pod { nodes, ..Pod::new(class, kube_qos) });
                let given = given.unwrap_or_default();
                if !given.is_empty() || cpu > 0 {
                    let request_milli = 1000 * given.iter().map(|_| 1).sum::<u64>().max(cpu);
                    wishes.push(Wish {
                        id,
                        uid: format!("uid-{id}"),
                        given,
                        request_milli,
                        cpu_milli: Some(cpu * 1000).filter(|milli| *milli > 0),
                        spec,
                    });
                }
            }
            Situation { cpus, kept, rules, pods, wishes }
        })
    })
}

fn place(situation: &Situation, placements: &mut Placements) -> BTreeMap<u32, Pin> {
    let machine = Machine { cpus: &situation.cpus, kept: situation.kept.clone(), rules: situation.rules };
    placements.place(&machine, &situation.wishes, true)
}

proptest! {
    #[test]
    fn no_two_choices_have_a_cpu_and_none_has_one_that_is_kept_or_given(situation in situation()) {
        let pins = place(&situation, &mut Placements::default());
        let mut seen = BTreeSet::new();
        let of_scheduler = |pin: &Pin| if let Pin::Given(cpus) = pin { cpus.clone() } else { CpuSet::default() };
        let given: CpuSet = pins.values().flat_map(|pin| of_scheduler(pin).iter().collect::<Vec<_>>()).collect();
        prop_assert!(given.iter().all(|cpu| !situation.kept.contains(cpu)));
        for (id, pin) in &pins {
            let Pin::Chosen(cpus) = pin else { continue };
            let wanted = situation.wishes.iter().find(|wish| wish.id == *id).unwrap().cpu_milli.unwrap() / 1000;
            prop_assert_eq!(cpus.len() as u64, wanted);
            for cpu in cpus.iter() {
                prop_assert!(seen.insert(cpu) && !given.contains(cpu) && !situation.kept.contains(cpu));
            }
        }
    }

    #[test]
    fn the_same_again_moves_nobody_whatever_the_order_of_pods(situation in situation()) {
        let mut placements = Placements::default();
        let pins = place(&situation, &mut placements);
        let turned = Situation { wishes: situation.wishes.iter().rev().cloned().collect(), ..situation.clone() };
        let chosen = |pins: &BTreeMap<u32, Pin>| -> BTreeMap<u32, CpuSet> {
            pins.iter().filter_map(|(id, pin)| Some((*id, pin.cpus()?.clone()))).collect()
        };
        let mut again = Placements::restore(&placements.save()).unwrap();
        let (before, after) = (chosen(&pins), chosen(&place(&turned, &mut again)));
        for (id, cpus) in &before {
            prop_assert_eq!(after.get(id), Some(cpus));
        }
    }

    #[test]
    fn a_set_is_never_empty_and_always_online_and_shares_nothing_with_who_is_alone(
        situation in situation(), holds_pools: bool, be_cpu_manager: bool, is_static: bool,
    ) {
        let pins = place(&situation, &mut Placements::default());
        let (shared_with_batch, exclusive) = pinned(&situation.pods, &pins);
        let taken = Taken { shared_with_batch, exclusive: exclusive.clone(), reserved: situation.kept.clone(), ..Taken::default() };
        let online: CpuSet = situation.cpus.iter().map(|cpu| cpu.id).collect();
        let node = Node {
            online: online.clone(),
            pools: Pools::of(&situation.cpus, &taken),
            system: CpuSet::default(),
            manager: Some(if is_static { Manager::Static } else { Manager::None }),
            be_cpu_manager,
            holds_pools,
        };
        for (id, pod) in &situation.pods {
            match assign(pod, pins.get(id), &node) {
                Assigned::Pinned(cpus) => prop_assert!(!cpus.is_empty() && cpus.is_subset(&online)),
                Assigned::Shared(cpus, _) => {
                    prop_assert!(!cpus.is_empty() && cpus.is_subset(&online) && cpus != online);
                    prop_assert!(cpus.iter().all(|cpu| !exclusive.contains(cpu) && !situation.kept.contains(cpu)));
                }
                Assigned::Nothing(_) | Assigned::Left => {}
            }
        }
    }

    #[test]
    fn any_text_is_a_request_or_a_named_fault(text: String) {
        let _ = Spec::parse(&text).map_err(|error| error.to_string());
        let _ = Spec::parse_numa(&text).map_err(|error| error.to_string());
    }
}
