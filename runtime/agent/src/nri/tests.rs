//! Tests of the NRI thread with a fake runtime, and with the loop's end of the channel.

use std::sync::mpsc::{Receiver, channel};

use qosm_nri::fake_runtime::FakeRuntime;
use qosm_nri::{PodSandbox, RunningContainer};
use tokio::net::UnixListener;
use tokio::time::timeout;

use super::*;

const LONG: Duration = Duration::from_secs(20);
const AT_ONCE: Retry = Retry { first: Duration::ZERO, longest: Duration::ZERO };

fn container(id: &str) -> RunningContainer {
    RunningContainer {
        id: id.to_owned(),
        name: "main".to_owned(),
        cgroup: None,
        pod: PodSandbox { uid: "uid".to_owned(), ..PodSandbox::default() },
    }
}

fn links(requests: &Receiver<Request>) -> Vec<RuntimeLink> {
    let link = |request| match request {
        Request::Runtime(RuntimeMessage::Link(link)) => Some(link),
        _ => None,
    };
    requests.try_iter().filter_map(link).collect()
}

/// Plays a runtime that listens on the thread's socket. Returns the reported links and the metrics.
fn play<F: Future<Output = ()>>(runtime: impl FnOnce(UnixListener) -> F) -> (Vec<RuntimeLink>, String) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("nri.sock");
    let metrics = Arc::new(Metrics::default());
    let (sender, requests) = channel();
    let config = NriConfig { socket: socket.clone(), ..NriConfig::default() };
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let thread = tokio.block_on(async {
        let listener = UnixListener::bind(&socket).unwrap();
        let thread = NriThread::retrying(&config, Arc::clone(&metrics), sender, AT_ONCE).unwrap();
        timeout(LONG, runtime(listener)).await.unwrap();
        thread
    });
    drop(thread);
    (links(&requests), metrics.text("", "").1)
}

async fn accept(listener: &UnixListener) -> FakeRuntime {
    FakeRuntime::new(listener.accept().await.unwrap().0)
}

#[test]
fn a_loop_that_hangs_holds_up_no_container() {
    // The loop takes no request from the channel.
    let (links, metrics) = play(async |listener| {
        let mut runtime = accept(&listener).await;
        let (plugin, _) = runtime.accept("containerd", &[]).await;
        assert_eq!(plugin, "00-qosm");
        for id in 0..10 {
            assert!(runtime.start(&container(&id.to_string())).await);
        }
    });
    let connected = RuntimeLink::Connected { runtime: "containerd".to_owned(), version: "v0.0.0-fake".to_owned() };
    assert_eq!(links.first(), Some(&connected));
    assert!(metrics.contains("qosm_container_starts_total{outcome=\"late\"} 4\n"), "{metrics}");
    assert!(metrics.contains("qosm_container_starts_total{outcome=\"skipped\"} 6\n"), "{metrics}");
}

#[test]
fn after_a_restart_of_the_runtime_the_plugin_registers_again() {
    let (links, _) = play(async |listener| {
        for name in ["containerd", "cri-o"] {
            let mut runtime = accept(&listener).await;
            runtime.accept(name, &[container("a")]).await;
            runtime.break_off(&container("b")).await;
        }
        // The plug-in registers once more: by then both disconnections were reported.
        accept(&listener).await.accept("containerd", &[]).await;
    });
    let reported: Vec<String> = links
        .iter()
        .map(|link| match link {
            RuntimeLink::Connected { runtime, .. } => runtime.clone(),
            RuntimeLink::Away { why, .. } => why.clone(),
            other => format!("{other:?}"),
        })
        .collect();
    let closed = "the runtime closed the connection";
    assert_eq!(reported[..5], ["containerd", closed, "cri-o", closed, "containerd"]);
}

#[test]
fn a_runtime_that_refuses_is_tried_again_and_reported_once() {
    let (links, metrics) = play(async |listener| {
        for _ in 0..3 {
            accept(&listener).await.refuse(12, "unknown service").await;
        }
    });
    let away = |link: &&RuntimeLink| matches!(link, RuntimeLink::Away { why, .. } if why.contains("unknown service"));
    assert_eq!(links.iter().filter(away).count(), 1, "{links:?}");
    assert!(metrics.contains("qosm_runtime_connected 0\n"), "{metrics}");
}

#[test]
fn off_is_off_and_a_socket_that_is_not_there_is_waited_for() {
    let off = NriConfig { mode: NriMode::Off, ..NriConfig::default() };
    let (sender, requests) = channel();
    assert!(NriThread::start(&off, Arc::default(), sender.clone()).unwrap().is_none());
    let folder = tempfile::tempdir().unwrap();
    let nowhere = NriConfig { socket: folder.path().join("nri.sock"), ..NriConfig::default() };
    let thread = NriThread::start(&nowhere, Arc::default(), sender).unwrap();
    let reported = requests.recv_timeout(LONG).unwrap();
    drop(thread);
    assert!(matches!(reported, Request::Runtime(RuntimeMessage::Link(RuntimeLink::Absent { .. }))));
}
