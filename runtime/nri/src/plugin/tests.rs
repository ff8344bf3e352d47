//! Tests of the plug-in with a fake runtime at the other end of a socket pair.

use std::sync::mpsc as std_mpsc;

use tokio::net::UnixStream;

use super::*;
use crate::fake_runtime::FakeRuntime;

const BUDGET: Duration = Duration::from_millis(50);

fn container(id: &str) -> RunningContainer {
    RunningContainer {
        id: id.to_owned(),
        name: "main".to_owned(),
        cgroup: Some(format!("kubepods/poduid/{id}")),
        pod: PodSandbox { uid: "uid".to_owned(), namespace: "shop".to_owned(), name: "web".to_owned() },
    }
}

/// Plays a runtime against the plug-in, whose events go to `on_event`. Returns how the plug-in ended.
fn play<F>(runtime: impl FnOnce(FakeRuntime) -> F, on_event: impl FnMut(RuntimeEvent)) -> NriError
where
    F: Future<Output = ()>,
{
    let play = async {
        let (theirs, ours) = UnixStream::pair().unwrap();
        let options = PluginOptions {
            name: "qosm".to_owned(),
            index: "00".to_owned(),
            budget: BUDGET,
            registration: Duration::from_millis(500),
        };
        let (ended, ()) = tokio::join!(serve(ours, &options, on_event), runtime(FakeRuntime::new(theirs)));
        ended.unwrap_err()
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(play)
}

#[test]
fn a_container_starts_when_the_caller_says_so() {
    let (sender, told) = std_mpsc::channel();
    let runtime = async |mut runtime: FakeRuntime| {
        let running = [container("a"), container("b"), container("c")];
        let (plugin, events) = runtime.accept("containerd", &running).await;
        assert_eq!((plugin.as_str(), events), ("00-qosm", 0b111_0011_1001));
        assert!(runtime.start(&container("d")).await);
        assert!(runtime.start_by_state_change(&container("e")).await);
        runtime.update(&container("d")).await;
        runtime.stop(&container("d")).await;
    };
    let ended = play(runtime, |event| {
        sender
            .send(match event {
                RuntimeEvent::Connected(runtime) => format!("connected {}", runtime.name),
                RuntimeEvent::Synchronized(running) => {
                    running.iter().fold("running".to_owned(), |all, one| format!("{all} {}", one.id))
                }
                RuntimeEvent::Starting(container, reply) => {
                    drop(reply);
                    format!("{container:?}")
                }
                RuntimeEvent::Stopped(id) => format!("stopped {id}"),
                RuntimeEvent::CgroupsChanged => "changed".to_owned(),
                RuntimeEvent::Answered(outcome, _) => format!("{outcome:?}"),
                RuntimeEvent::Adjusted(adjustment) => format!("{adjustment:?}"),
            })
            .unwrap();
    });
    assert!(matches!(ended, NriError::Closed { configured: true }), "{ended}");
    let told: Vec<String> = told.try_iter().collect();
    let expected = [
        "connected containerd".to_owned(),
        "running a b c".to_owned(),
        format!("{:?}", container("d")),
        "InTime".to_owned(),
        format!("{:?}", container("e")),
        "InTime".to_owned(),
        "changed".to_owned(),
        "stopped d".to_owned(),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_caller_that_never_answers_holds_up_four_containers_and_each_for_the_budget() {
    let mut kept = Vec::new();
    let (sender, outcomes) = std_mpsc::channel();
    let runtime = async |mut runtime: FakeRuntime| {
        runtime.accept("containerd", &[]).await;
        let begun = Instant::now();
        for id in ["a", "b", "c", "d"] {
            assert!(runtime.start(&container(id)).await);
        }
        assert!(begun.elapsed() >= BUDGET * 4, "{:?}", begun.elapsed());
        let rest = Instant::now();
        for id in 0..200 {
            assert!(runtime.start(&container(&id.to_string())).await);
        }
        assert!(rest.elapsed() < BUDGET * 100, "200 containers waited {:?}", rest.elapsed());
    };
    play(runtime, |event| match event {
        RuntimeEvent::Starting(_, reply) => kept.push(reply),
        RuntimeEvent::Answered(outcome, _) => sender.send(outcome).unwrap(),
        _ => {}
    });
    let outcomes: Vec<_> = outcomes.try_iter().collect();
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == StartOutcome::Late).count(), 4);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == StartOutcome::Skipped).count(), 200);
    assert_eq!(kept.len(), 204, "each is known all the same");
}

#[test]
fn what_other_plugins_change_is_told() {
    let (sender, told) = std_mpsc::channel();
    let runtime = async |mut runtime: FakeRuntime| {
        runtime.accept("cri-o", &[]).await;
        runtime.create(&container("a"), &[("memory.high", "1")], &[("memory.high", "1")]).await;
        runtime.create(&container("b"), &[("memory.high", "1")], &[("memory.high", "2"), ("cpu.max.burst", "5")]).await;
    };
    play(runtime, |event| {
        if let RuntimeEvent::Adjusted(Adjustment { container, fields }) = event {
            sender.send((container.id, fields)).unwrap();
        }
    });
    let told: Vec<_> = told.try_iter().collect();
    assert_eq!(told, [("b".to_owned(), vec!["unified cpu.max.burst".to_owned(), "unified memory.high".to_owned()])]);
}

#[test]
fn nothing_that_a_runtime_sends_fails_a_container() {
    let runtime = async |mut runtime: FakeRuntime| {
        runtime.accept("containerd", &[]).await;
        for method in ["StartContainer", "CreateContainer", "PostCreateContainer", "StopContainer", "StateChange"] {
            for payload in [&b""[..], b"\xff\xff\xff", b"\x0a\x05abc"] {
                assert_eq!(runtime.call_raw(method, payload).await, Ok(Vec::new()), "{method} {payload:?}");
            }
        }
        assert_eq!(runtime.call_raw("OfAVersionToCome", b"").await, Err(ttrpc::UNIMPLEMENTED));
        assert!(runtime.start(&container("a")).await, "it goes on after that");
    };
    let ended = play(runtime, drop);
    assert!(matches!(ended, NriError::Closed { configured: true }), "{ended}");
}

#[test]
fn how_a_connection_ends_is_told() {
    let shown = |ended: NriError| ended.to_string();
    let refused = async |mut runtime: FakeRuntime| runtime.refuse(12, "service nri.pkg.api.v1alpha1.Runtime").await;
    assert_eq!(
        shown(play(refused, drop)),
        "the runtime refused the registration: service nri.pkg.api.v1alpha1.Runtime (code 12)"
    );
    let closes = async |runtime: FakeRuntime| drop(runtime);
    let ended = shown(play(closes, drop));
    assert!(ended.contains("closed the connection before it configured") || ended.contains("broke"), "{ended}");
    let shuts_down = async |mut runtime: FakeRuntime| {
        runtime.accept("containerd", &[]).await;
        assert_eq!(runtime.call_raw("Shutdown", b"").await, Ok(Vec::new()));
    };
    assert_eq!(shown(play(shuts_down, drop)), "the runtime shuts down");
    let breaks_off = async |mut runtime: FakeRuntime| {
        runtime.accept("containerd", &[]).await;
        runtime.break_off(&container("a")).await;
    };
    assert_eq!(shown(play(breaks_off, drop)), "the runtime closed the connection");
    let no_nri = async |mut runtime: FakeRuntime| {
        runtime.send_raw(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let ended = play(no_nri, drop);
    assert!(matches!(ended, NriError::Frame(_)), "{ended}");
}

#[test]
fn a_socket_that_says_nothing_is_given_up() {
    let silent = async |runtime: FakeRuntime| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(runtime);
    };
    let ended = play(silent, drop);
    assert!(matches!(ended, NriError::Silent(_)), "{ended}");
}

#[test]
fn a_list_of_megabytes_is_taken_in_time() {
    let name = "n".repeat(8000);
    let running: Vec<RunningContainer> =
        (0..600).map(|number| RunningContainer { name: name.clone(), ..container(&number.to_string()) }).collect();
    let (sender, counted) = std_mpsc::channel();
    let runtime = async |mut runtime: FakeRuntime| {
        runtime.accept("containerd", &running).await;
        assert!(runtime.start(&container("a")).await);
    };
    play(runtime, |event| {
        if let RuntimeEvent::Synchronized(running) = event {
            sender.send(running.len()).unwrap();
        }
    });
    assert_eq!(counted.try_iter().collect::<Vec<_>>(), [600]);
}
