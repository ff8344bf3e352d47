use super::*;
use qosm_model::block_io::DeviceNumber;
use qosm_model::pod::Tier;

const POD: Target = Target::Pod(PodId(1));
const CONTAINER: Target = Target::Container(ContainerId(7));

fn transaction() -> Transaction {
    let mut transaction = Transaction::new(Limits { settings: 4, ..Limits::default() }, b"old".to_vec().into());
    transaction.add_pod(PodId(1), vec![ContainerId(7), ContainerId(8)]);
    transaction.begin();
    transaction
}

#[test]
fn every_knob_has_a_bit_of_its_own() {
    let of_no_device = || Knob::ALL.into_iter().filter(|knob| knob.device().is_none());
    let bits: HashSet<u32> = of_no_device().map(bit).collect();
    assert_eq!(bits.len(), of_no_device().count());
    assert!(bits.into_iter().all(|bit| bit.count_ones() == 1));
}

#[test]
fn a_knob_is_held_of_each_device() {
    let device = |minor| Knob::IoWeight(DeviceNumber { major: 8, minor });
    let mut transaction = Transaction::new(Limits { settings: 2, ..Limits::default() }, InheritedState::default());
    transaction.add_pod(PodId(1), vec![ContainerId(7)]);
    let reason: Arc<str> = "because".into();
    let acquire = |transaction: &mut Transaction, knob| transaction.acquire(POD, knob, Value::Number(1), &reason);
    transaction.begin();
    assert_eq!(transaction.release(POD, device(0)), Ok(()), "what is not held is not given up");
    assert_eq!(acquire(&mut transaction, device(0)), Ok(()));
    assert_eq!(acquire(&mut transaction, device(16)), Ok(()));
    assert_eq!(transaction.commit().settings.len(), 2);
    transaction.begin();
    assert_eq!(acquire(&mut transaction, device(32)), Err(Rule::TooManyOfDevices { limit: 2 }));
    assert_eq!(acquire(&mut transaction, device(16)), Ok(()), "what is held may change");
    assert_eq!(transaction.release(POD, device(0)), Ok(()));
    transaction.discard();
    assert!(transaction.holds(POD, device(0)) && transaction.holds(POD, device(16)));
    transaction.begin();
    assert_eq!(transaction.release(POD, device(0)), Ok(()));
    assert_eq!(transaction.release(POD, device(0)), Ok(()));
    assert_eq!(transaction.commit().settings, [Setting::Release { target: POD, knob: device(0) }]);
    transaction.remove_pod(PodId(1));
    transaction.add_pod(PodId(1), vec![]);
    assert!(!transaction.holds(POD, device(16)));
    transaction.begin();
    assert_eq!(acquire(&mut transaction, device(32)), Ok(()));
    assert_eq!(acquire(&mut transaction, device(48)), Ok(()), "what was held on the pod counts no longer");
}

#[test]
fn only_known_targets_can_be_named() {
    let mut transaction = transaction();
    for (target, known) in [
        (Target::Tier(Tier::Burstable), true),
        (POD, true),
        (CONTAINER, true),
        (Target::Pod(PodId(7)), false),
        (Target::Container(ContainerId(1)), false),
    ] {
        assert_eq!(transaction.require(target).is_ok(), known, "{target:?}");
    }
    transaction.add_pod(PodId(1), vec![ContainerId(8)]);
    assert!(transaction.require(CONTAINER).is_err(), "its container was replaced");
    transaction.remove_pod(PodId(1));
    assert!(transaction.require(POD).is_err());
    assert!(transaction.require(Target::Container(ContainerId(8))).is_err());
}

#[test]
fn a_knob_is_released_once_and_only_if_held() {
    let mut transaction = transaction();
    let reason = "because".into();
    assert_eq!(transaction.release(POD, Knob::MemoryMin), Ok(()));
    assert_eq!(transaction.acquire(POD, Knob::MemoryMin, Value::Number(1), &reason), Ok(()));
    assert_eq!(transaction.commit().settings.len(), 1);
    transaction.begin();
    for _ in 0..3 {
        assert_eq!(transaction.release(POD, Knob::MemoryMin), Ok(()));
        assert_eq!(transaction.release(POD, Knob::MemoryLow), Ok(()));
    }
    assert_eq!(transaction.commit().settings, [Setting::Release { target: POD, knob: Knob::MemoryMin }]);
}

#[test]
fn a_discarded_call_leaves_what_was_held_and_saved() {
    let mut transaction = transaction();
    let reason = "because".into();
    assert_eq!(transaction.acquire(POD, Knob::MemoryMin, Value::Number(1), &reason), Ok(()));
    transaction.commit();
    transaction.begin();
    assert_eq!(transaction.release(POD, Knob::MemoryMin), Ok(()));
    assert_eq!(transaction.acquire(CONTAINER, Knob::CfsQuota, Value::Max, &reason), Ok(()));
    assert_eq!(transaction.save(b"new".to_vec()), Ok(()));
    assert_eq!(transaction.state(), b"new");
    transaction.log(LogLevel::Info, "last words".to_owned());
    transaction.discard();
    assert_eq!(transaction.state(), b"old");
    assert_eq!(transaction.take_log().0.len(), 1);
    transaction.begin();
    assert_eq!(transaction.release(CONTAINER, Knob::CfsQuota), Ok(()));
    assert_eq!(transaction.release(POD, Knob::MemoryMin), Ok(()));
    let staged = transaction.commit();
    assert_eq!(staged.settings, [Setting::Release { target: POD, knob: Knob::MemoryMin }]);
    assert_eq!(staged.state, None);
}

#[test]
fn what_an_operator_wrote_is_cut_and_ends_no_call() {
    let mut transaction = transaction();
    let long = "é\n".repeat(4000);
    let problem = KeyProblem { key: long.clone(), field: long.clone(), message: long };
    for _ in 0..4 {
        assert_eq!(transaction.key_problem(problem.clone()), Ok(()));
    }
    assert_eq!(transaction.key_problem(problem), Err(Rule::TooManyProblems { limit: 4 }));
    let staged = transaction.commit();
    let KeyProblem { key, field, message } = &staged.key_problems[0];
    let ellipsis = "…".len();
    assert_eq!(
        [key, field, message].map(String::len),
        [255, 255, 1023].map(|length| length + ellipsis),
        "cut at a letter"
    );
    assert!([key, field, message].iter().all(|text| text.capacity() < 4096), "most of 12000 bytes is given back");
    assert!(!message.contains('\n'));
}

#[test]
fn settings_texts_and_lines_are_bounded() {
    let mut transaction = transaction();
    let reason = "because".into();
    for _ in 0..4 {
        assert_eq!(transaction.acquire(POD, Knob::MemoryMin, Value::Number(1), &reason), Ok(()));
    }
    assert_eq!(
        transaction.acquire(POD, Knob::MemoryMin, Value::Number(1), &reason),
        Err(Rule::TooManySettings { limit: 4 })
    );
    assert_eq!(&*transaction.reason("x".repeat(4097)), "x".repeat(4096) + "…");
    let many: Vec<_> = (0..300).map(|number| transaction.reason(format!("{number:04096}"))).collect();
    let all: usize = many.iter().map(|reason| reason.trim_end_matches('…').len()).sum();
    assert!(all <= 1 << 20 && &*many[299] == "…", "what is beyond the text of a call is cut: {all}");
    for _ in 0..100 {
        transaction.log(LogLevel::Debug, "é".repeat(600));
    }
    let (log, dropped) = transaction.take_log();
    assert_eq!((log.len(), dropped), (64, 36));
    assert!(log.iter().all(|line| line.message == "é".repeat(512)));
    assert!(transaction.save(vec![0; 65_537]).is_err());
    assert_eq!(transaction.save(vec![0; 65_536]), Ok(()));
}

#[test]
fn a_repeated_reason_is_one_text_and_paid_once() {
    let mut transaction = transaction();
    let first = transaction.reason("r".repeat(4096));
    for _ in 0..1000 {
        assert!(Arc::ptr_eq(&first, &transaction.reason("r".repeat(4096))));
    }
}

#[test]
fn resources_are_withdrawn_by_those_who_publish_them_and_few_enough() {
    let mut transaction = Transaction::new(Limits::default(), InheritedState::default());
    let name = |number: usize| -> ResourceName { format!("example.com/r{number}").parse().unwrap() };
    transaction.begin();
    assert_eq!(transaction.withdraw(name(0)), Ok(()));
    for number in 0..MAX_RESOURCES {
        assert_eq!(transaction.publish(name(number), Offer::default(), "".into()), Ok(()));
    }
    assert!(matches!(
        transaction.publish(name(MAX_RESOURCES), Offer::default(), "".into()),
        Err(Rule::Resource { .. })
    ));
    assert_eq!(transaction.publish(name(0), Offer::default(), "".into()), Ok(()), "one that is there may change");
    assert_eq!(transaction.commit().settings.len(), MAX_RESOURCES + 1, "what was not published is not withdrawn");
    transaction.begin();
    assert_eq!(transaction.withdraw(name(0)), Ok(()));
    transaction.discard();
    assert!(transaction.publishes(&name(0)), "a discarded call withdraws nothing");
    for (seconds, fits) in [(59, false), (60, true), (86_400, true), (86_401, false)] {
        assert_eq!(transaction.stale_after(seconds).is_ok(), fits, "{seconds}");
    }
}

#[test]
fn an_eviction_is_of_a_known_pod_for_one_word_and_may_have_been_asked_for_by_an_earlier_instance() {
    use qosm_model::eviction::Urgency;
    let wanted = |pod: u32, reason: &str| Eviction {
        pod: PodId(pod),
        urgency: Urgency::Soon,
        grace_period: None,
        reason: reason.to_owned(),
        message: "m".to_owned(),
    };
    let mut transaction = transaction();
    assert_eq!(transaction.withdraw_eviction(PodId(1)), Ok(()));
    assert!(matches!(transaction.evict(wanted(2, "Known")), Err(Rule::UnknownTarget { .. })));
    assert!(matches!(transaction.evict(wanted(1, "two words")), Err(Rule::EventReason { .. })));
    assert_eq!(transaction.evict(wanted(1, "MemoryUsage")), Ok(()));
    assert_eq!(transaction.withdraw_eviction(PodId(1)), Ok(()));
    assert_eq!(transaction.withdraw_eviction(PodId(2)), Ok(()), "a pod that is gone has no request");
    assert_eq!(transaction.commit().settings.len(), 3);
}

#[test]
fn no_text_can_steer_a_terminal() {
    let mut transaction = transaction();
    assert_eq!(transaction.text("a\u{1b}[31m\nb".to_owned()), "a [31m b");
    transaction.log(LogLevel::Warn, "one\r\ntwo".to_owned());
    assert_eq!(transaction.take_log().0.first().map(|line| line.message.as_str()), Some("one  two"));
}

#[test]
fn an_event_may_have_lines() {
    let mut transaction = transaction();
    let message = "one\u{1b}[2J\ntwo\r\n".to_owned();
    assert_eq!(transaction.event(PodId(1), EventKind::Normal, "Lines".to_owned(), message), Ok(()));
    let breaks = "\n".repeat(2 << 20);
    assert_eq!(transaction.event(PodId(1), EventKind::Normal, "Lines".to_owned(), breaks), Ok(()));
    let messages: Vec<_> = transaction.commit().events.into_iter().map(|event| event.message).collect();
    assert_eq!(messages, ["one [2J\ntwo \n".to_owned(), "\n".repeat(4096) + "…"]);
}

#[test]
fn an_event_has_a_reason_that_kubernetes_takes() {
    let mut transaction = transaction();
    for (reason, good) in [("BurstExhausted", true), ("", false), ("two words", false), ("lower", false)] {
        let result = transaction.event(PodId(1), EventKind::Normal, reason.to_owned(), "m".to_owned());
        assert_eq!(result.is_ok(), good, "{reason:?}");
    }
    assert!(transaction.event(PodId(2), EventKind::Normal, "Known".to_owned(), "m".to_owned()).is_err());
}
