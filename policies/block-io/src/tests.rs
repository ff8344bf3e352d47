use qosm_sdk::mock::{self, ConfigKey, KeyProblem, MockHost};
use qosm_sdk::{IoDevice, IoDeviceInfo, IoLimits, PodFacts, QosClass, Session};

use super::*;

const SDB: IoDevice = IoDevice { major: 8, minor: 16 };

struct Run {
    host: MockHost,
    policy: Session<BlockIo>,
}

impl Run {
    fn new() -> Self {
        let mut host = MockHost::granting(["cluster-config", "block-io"]);
        let names = vec!["sdb".to_owned()];
        host.columns.block_devices =
            vec![IoDeviceInfo { device: SDB, names, partitions: vec![], volume_groups: vec![] }];
        let mut run = Self { host, policy: Session::default() };
        run.policy.configure(&mut run.host, "{}").unwrap();
        run
    }

    fn pod(&mut self, class: Option<QosClass>, config: &str) -> Vec<Rejection> {
        let pod = PodFacts {
            declared_qos: class,
            config: config.into(),
            containers: vec![mock::container(7, "app")],
            ..mock::pod(1, "shop", "web")
        };
        self.policy.pods(&mut self.host, vec![pod], &[]).unwrap()
    }

    /// The problems that an evaluation with this strategy reports.
    fn tick(&mut self, strategy: &str) -> Vec<KeyProblem> {
        let key = ConfigKey { text: strategy.into(), strategy: strategy.into() };
        self.host.columns.cluster_config.insert(CONFIG_MAP_KEY.into(), key);
        self.policy.evaluate(&mut self.host, mock::tick(1_000)).unwrap();
        self.host.commit();
        assert_eq!(self.host.log, [], "problems are no lines of the log");
        self.host.key_problems.clone()
    }
}

#[test]
fn a_field_that_cannot_be_is_a_problem_while_it_is_there() {
    let mut run = Run::new();
    let strategy = |bps: u64| {
        let block = format!(r#"{{"name": "sdb", "type": "device", "ioCfg": {{"readBPS": {bps}}}}}"#);
        format!(r#"{{"beClass": {{"blkioQOS": {{"enable": true, "blocks": [{block}]}}}}}}"#)
    };
    assert_eq!(run.tick(&strategy(9)), []);
    let limits = IoLimits { read_bps: Some(9), ..IoLimits::NONE };
    assert_eq!(run.host.io_max(BATCH, SDB), Some(limits));
    for _ in 0..2 {
        let problems = run.tick(&strategy(1));
        let [KeyProblem { key, field, message }] = problems.as_slice() else { panic!("{problems:?}") };
        assert_eq!((key.as_str(), field.as_str()), (CONFIG_MAP_KEY, "beClass.blkioQOS.blocks[0].ioCfg.readBPS"));
        assert!(message.starts_with("it is 1; ") && message.contains("its last valid value counts"), "{message}");
        assert_eq!(run.host.io_max(BATCH, SDB), Some(limits));
    }
    assert!(run.host.remarks.last().is_some_and(|remark| remark.target == BATCH && remark.knob == KNOB));
    assert_eq!(run.tick("{}"), []);
    assert_eq!(run.host.io_max(BATCH, SDB), None);
}

#[test]
fn a_problem_says_what_counts_until_it_is_corrected() {
    let blkio = |class: &str, text: &str| format!(r#"{{"{class}": {{"blkioQOS": {text}}}}}"#);
    let disk = r#"{"enable": true, "blocks": [{"name": "sdb", "type": "disk"}]}"#;
    for (strategy, field, meanwhile) in [
        (blkio("beClass", disk), "beClass.blkioQOS.blocks[0].type", "Until then the block does not count"),
        (blkio("beClass", r#"{"block": []}"#), "beClass.blkioQOS.block", "The other fields count"),
        (blkio("beClass", "3"), "beClass.blkioQOS", "Until then its last valid value counts"),
        (blkio("lsClass", "3"), "lsClass.blkioQOS", "The other fields count"),
        (blkio("lsClass", &disk.replace("true", "1")), "lsClass.blkioQOS", "The other fields count"),
    ] {
        let problems = Run::new().tick(&strategy);
        let [KeyProblem { field: named, message, .. }] = problems.as_slice() else {
            panic!("{strategy}: {problems:?}")
        };
        assert!(named == field && message.contains(meanwhile), "{strategy}: {named}: {message}");
    }
}

#[test]
fn a_pod_without_a_class_is_rejected_and_a_field_that_cannot_be_is_named() {
    let mut run = Run::new();
    let config = r#"{"blocks": [{"name": "sdb", "type": "device", "ioCfg": {"readBPS": 1, "writeBPS": 9}}]}"#;
    let rejections = run.pod(None, config);
    assert_eq!((rejections.len(), rejections[0].field.as_str()), (1, "koordinator.sh/qosClass"));
    run.tick("{}");
    assert_eq!(run.host.io_max(Target::Pod(1), SDB), None);
    assert!(
        run.host.remarks.last().is_some_and(|remark| remark.reason.contains("set the label koordinator.sh/qosClass"))
    );

    let rejections = run.pod(Some(QosClass::Ls), config);
    let [rejection] = rejections.as_slice() else { panic!("{rejections:?}") };
    assert_eq!(
        (rejection.field.as_str(), rejection.message.as_str()),
        ("blocks[0].ioCfg.readBPS", "it is 1; give 0 for no limit, or 2 to 9223372036854775807")
    );
    run.tick("{}");
    let limits = IoLimits { write_bps: Some(9), ..IoLimits::NONE };
    assert_eq!(run.host.io_max(Target::Pod(1), SDB), Some(limits));
    assert_eq!(run.pod(Some(QosClass::Ls), "{}"), []);
    run.tick("{}");
    assert_eq!(run.host.io_max(Target::Pod(1), SDB), None);
}

#[test]
fn a_configuration_of_its_own_that_cannot_be_is_refused_by_name() {
    let mut run = Run::new();
    let config = r#"{"beBlocks": [{"name": "sdb", "type": "device", "ioCfg": {"readBPS": 1}}], "rootBlocks": [{"name": "sdb"}]}"#;
    let error = run.policy.configure(&mut run.host, config).unwrap_err();
    assert!(
        error.starts_with(
            "beBlocks[0].ioCfg.readBPS is 1; give 0 for no limit, or 2 to 9223372036854775807; rootBlocks[0].type"
        ),
        "{error}"
    );
    let config = r#"{"beBlocks": [{"name": "sdb", "type": "device", "ioCfg": {"readBPS": 9}}]}"#;
    run.policy.configure(&mut run.host, config).unwrap();
    run.tick("{}");
    assert!(run.host.io_max(BATCH, SDB).is_some());
    // The cluster's key takes precedence.
    run.tick(r#"{"beClass": {"blkioQOS": {"enable": false}}}"#);
    assert_eq!(run.host.io_max(BATCH, SDB), None);
}

#[test]
fn of_a_pod_with_many_blocks_of_unknown_devices_64_count_and_what_is_said_is_bounded() {
    let mut run = Run::new();
    let mut blocks: Vec<_> = (0..4_000)
        .map(|number| format!(r#"{{"name": "sd{number}", "type": "device", "ioCfg": {{"readBPS": 9}}}}"#))
        .collect();
    blocks[63] = blocks[63].replace("sd63", "sdb");
    let rejections = run.pod(Some(QosClass::Ls), &format!(r#"{{"blocks": [{}]}}"#, blocks.join(", ")));
    let [rejection] = rejections.as_slice() else { panic!("{rejections:?}") };
    assert_eq!(
        (rejection.field.as_str(), rejection.message.as_str()),
        ("blocks", "it is a list of 64 blocks and 3936 more, which do not count; give at most 64")
    );
    assert_eq!(run.policy.policy().pods.get(1).unwrap().config.as_ref().unwrap().blocks.len(), 64);
    run.tick("{}");
    // The last block that counts.
    assert!(run.host.io_max(Target::Pod(1), SDB).is_some());
    let [remark] = run.host.remarks.as_slice() else { panic!("{:?}", run.host.remarks) };
    let begin = format!(
        "{ANNOTATION}: blocks is a list of 64 blocks and 3936 more, which do not count; give at most 64. \
         {ANNOTATION}: no device of this node is called \"sd0\""
    );
    assert!(remark.reason.starts_with(&begin), "{}", remark.reason);
    // 63 devices do not exist: some are named, the others are counted.
    let named = remark.reason.matches("no device of this node").count();
    let end = format!(". And {} more", 63 - named);
    assert!(remark.reason.len() < 1_600 && remark.reason.ends_with(&end), "{}", remark.reason);
}

#[test]
fn of_a_pod_with_many_bad_blocks_a_few_are_kept_and_named() {
    let mut run = Run::new();
    let blocks = vec!["4"; 80_000].join(",");
    let rejections = run.pod(Some(QosClass::Ls), &format!(r#"{{"blocks": [{blocks}]}}"#));
    let [rejection] = rejections.as_slice() else { panic!("{rejections:?}") };
    let bad = ["blocks[0] is 4; give an object", "blocks[1] is 4; give an object", "blocks[2] is 4; give an object"];
    let said = [
        "blocks is a list of 64 blocks and 79936 more, which do not count; give at most 64",
        bad[0],
        bad[1],
        bad[2],
        "blocks is wrong in these and 61 more fields; those are named when these are mended",
    ];
    assert_eq!((rejection.field.as_str(), rejection.message.as_str()), ("blocks", said.join("; ").as_str()));
    let kept = run.policy.policy().pods.get(1).unwrap().config.clone().unwrap();
    assert_eq!(kept.blocks, []);
    run.tick("{}");
    let [remark] = run.host.remarks.as_slice() else { panic!("{:?}", run.host.remarks) };
    let said = said.map(|fault| format!("{ANNOTATION}: {fault}")).join(". ");
    assert_eq!((remark.target, &remark.reason), (Target::Pod(1), &said));
    assert_eq!(kept.refused.to_string(), said, "put into words once, when the pod came");
}
