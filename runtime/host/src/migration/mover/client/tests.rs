//! The client against a mover that the tests simulate.

use std::os::fd::OwnedFd;

use qosm_model::numa::{NumaId, NumaTopology};
use rustix::net::{bind, listen, socketpair};
use serde::de::DeserializeOwned;

use super::*;
use crate::migration::job::MigrationLimits;
use crate::migration::mover::protocol::{MoverConfinement, Progress};

const PATIENCE: Duration = Duration::from_secs(20);

fn pair() -> (OwnedFd, Channel) {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    (ours, Channel::new(theirs))
}

fn job(cgroup: &str) -> Job {
    Job {
        tree: 0,
        cgroup: cgroup.to_owned(),
        from: vec![NumaId(1)],
        to: vec![NumaId(0)],
        topology: NumaTopology::default(),
        limits: MigrationLimits::default(),
        may_move_shared: true,
    }
}

fn hello(channel: &Channel) {
    channel.send(&Event::Hello { version: VERSION, confinement: MoverConfinement::default() }).unwrap();
}

fn reported(moved: u64, found: u64, state: MigrationState) -> Progress {
    let progress = MigrationProgress { pages_moved: moved, pages_found: found, state, ..MigrationProgress::default() };
    progress.into()
}

#[track_caller]
fn next<T: DeserializeOwned>(channel: &mut Channel) -> T {
    channel.receive(PATIENCE).unwrap().expect("a message in time")
}

#[track_caller]
fn wait(run: &Run, wanted: impl Fn(&MigrationProgress) -> bool) -> MigrationProgress {
    let begun = Instant::now();
    loop {
        let progress = run.progress();
        if wanted(&progress) {
            return progress;
        }
        assert!(begun.elapsed() < PATIENCE, "{progress:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn job_queue(client: &Client, cgroup: &str) -> Arc<Run> {
    let run = Arc::new(Run::new(42));
    client.add(job(cgroup), Arc::clone(&run)).unwrap();
    run
}

#[test]
fn a_request_is_sent_and_its_progress_recorded() {
    let (socket, mut mover) = pair();
    let client = Client::start(MoverAddress::Connected(socket)).unwrap();
    hello(&mover);
    let run = job_queue(&client, "kubepods/podx/c");
    let Request::Move { id, cgroup, from, to, .. } = next(&mut mover) else { unreachable!("nothing was called off") };
    assert_eq!((cgroup.as_str(), from, to), ("kubepods/podx/c", vec![1], vec![0]));
    mover.send(&Event::Progress { id, progress: reported(3, 9, MigrationState::Moving) }).unwrap();
    let progress = wait(&run, |progress| progress.pages_moved == 3);
    assert_eq!((progress.token, progress.state), (42, MigrationState::Moving));
    assert!(matches!(client.state(), MoverState::Ready(_)));
    run.cancel();
    assert_eq!(next::<Request>(&mut mover), Request::Cancel { id });
    mover.send(&Event::Progress { id, progress: reported(4, 9, MigrationState::Stopped) }).unwrap();
    wait(&run, |progress| progress.state == MigrationState::Stopped && progress.pages_moved == 4);
}

#[test]
fn requests_that_a_mover_left_open_are_sent_to_the_next() {
    let (socket, mut mover) = pair();
    let client = Client::start(MoverAddress::Connected(socket)).unwrap();
    hello(&mover);
    let run = job_queue(&client, "kubepods/podx/c");
    let Request::Move { id, .. } = next(&mut mover) else { unreachable!("nothing was called off") };
    mover.send(&Event::Progress { id, progress: reported(5, 9, MigrationState::Moving) }).unwrap();
    wait(&run, |progress| progress.pages_moved == 5);
    mover.send(&Event::Ended { why: "signal 9".to_owned(), seconds: 1 }).unwrap();
    let paused = wait(&run, |progress| progress.state == MigrationState::Paused);
    assert!(paused.why.contains("the page mover is away") && paused.why.contains("signal 9"), "{}", paused.why);
    assert!(matches!(client.state(), MoverState::Away(why) if why.contains("signal 9")));

    hello(&mover);
    let Request::Move { id: again, .. } = next(&mut mover) else { unreachable!("nothing was called off") };
    assert_eq!(again, id);
    // The new mover counts from 0; the total includes the pages moved before.
    mover.send(&Event::Progress { id, progress: reported(4, 4, MigrationState::Done) }).unwrap();
    let done = wait(&run, |progress| progress.state == MigrationState::Done);
    assert_eq!((done.pages_moved, done.pages_found), (9, 9));
}

#[test]
fn where_no_mover_can_come_requests_fail_and_say_why() {
    let client = Client::start(MoverAddress::Absent("there is no second NUMA node".to_owned())).unwrap();
    for _ in 0..2 {
        let run = job_queue(&client, "kubepods/podx/c");
        let failed = wait(&run, |progress| progress.state == MigrationState::Failed);
        assert_eq!(failed.why, "there is no page mover: there is no second NUMA node");
    }
    // A child without a supervisor does not come back either.
    let (socket, mut mover) = pair();
    let client = Client::start(MoverAddress::Connected(socket)).unwrap();
    hello(&mover);
    let run = job_queue(&client, "kubepods/podx/c");
    assert!(matches!(next(&mut mover), Request::Move { .. }));
    drop(mover);
    let failed = wait(&run, |progress| progress.state == MigrationState::Failed);
    assert!(failed.why.contains("restart the agent"), "{}", failed.why);
}

#[test]
fn while_a_mover_is_away_requests_wait_and_can_be_cancelled() {
    let client = Client::start(MoverAddress::Listening("/nonexistent/mover.sock".into())).unwrap();
    let run = job_queue(&client, "kubepods/podx/c");
    let paused = wait(&run, |progress| progress.state == MigrationState::Paused);
    assert!(paused.why.contains("/nonexistent/mover.sock"), "{}", paused.why);
    run.cancel();
    wait(&run, |progress| progress.state == MigrationState::Stopped);
}

#[test]
fn a_mover_that_listens_is_found_as_soon_as_it_is_there_and_again_after_it_was_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mover.sock");
    let client = Client::start(MoverAddress::Listening(path.clone())).unwrap();
    let run = job_queue(&client, "kubepods/podx/c");
    let paused = wait(&run, |progress| progress.state == MigrationState::Paused);
    assert!(paused.why.contains("mover.sock"), "{}", paused.why);
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 4).unwrap();
    for _ in 0..2 {
        let mut mover = Channel::new(rustix::net::accept(&listener).unwrap());
        hello(&mover);
        assert!(matches!(next(&mut mover), Request::Move { .. }));
        drop(mover);
        wait(&run, |progress| progress.state == MigrationState::Paused);
    }
}

#[test]
fn a_mover_with_another_protocol_version_is_reported_and_not_used() {
    let (socket, mut mover) = pair();
    let client = Client::start(MoverAddress::Connected(socket)).unwrap();
    let run = job_queue(&client, "kubepods/podx/c");
    mover.send(&Event::Hello { version: VERSION + 1, confinement: MoverConfinement::default() }).unwrap();
    let failed = wait(&run, |progress| progress.why.contains("version"));
    assert_eq!(failed.state, MigrationState::Failed);
    assert_eq!(mover.receive::<Request>(PATIENCE).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn the_thread_ends_with_the_host() {
    let (socket, mut mover) = pair();
    let client = Client::start(MoverAddress::Connected(socket)).unwrap();
    hello(&mover);
    let run = job_queue(&client, "kubepods/podx/c");
    assert!(matches!(next(&mut mover), Request::Move { .. }));
    drop((client, run));
    assert_eq!(mover.receive::<Request>(PATIENCE).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

fn answer(client: &Client) -> CoreGroupReport {
    let begun = Instant::now();
    loop {
        if let Some(report) = client.take_core_groups() {
            return report;
        }
        assert!(begun.elapsed() < PATIENCE, "no answer");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn core_groups_are_asked_for_until_a_mover_has_answered_and_the_answer_is_taken_once() {
    let (socket, mut mover) = pair();
    let client = Client::start(MoverAddress::Connected(socket)).unwrap();
    // Before there is a mover, the request waits.
    assert!(client.reconcile_core_groups());
    hello(&mover);
    assert_eq!(next::<Request>(&mut mover), Request::CoreGroups);
    // This mover ends without an answer.
    mover.send(&Event::Ended { why: "signal: 9".to_owned(), seconds: 0 }).unwrap();
    hello(&mover);
    assert_eq!(next::<Request>(&mut mover), Request::CoreGroups);
    let report = CoreGroupReport { groups: 2, processes: 5, ..CoreGroupReport::default() };
    mover.send(&Event::CoreGroups(report.clone().into())).unwrap();
    assert_eq!(answer(&client), report);
    assert_eq!((client.take_core_groups(), client.absent()), (None, None));
}

#[test]
fn without_a_mover_nobody_is_asked_about_core_groups() {
    let client = Client::start(MoverAddress::Absent("this node has one NUMA node".to_owned())).unwrap();
    assert!(!client.reconcile_core_groups());
    assert_eq!(client.absent().as_deref(), Some("this node has one NUMA node"));
}
