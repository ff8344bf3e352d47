//! Disturbed pulls: the process is killed, other processes pull as well, the disk is full, the registry goes away. Each pull is a
//! separate process, and a proxy before the registry records the transfers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use qosm_model::digest::Digest;
use serde_json::{Value, json};

use crate::artefacts::{Desk, module};
use crate::env::{Ran, env, qosm, run};
use crate::waiting::wait_until;

/// Number of bytes of a layer that arrive before the disturbance.
const PART: u64 = 100_000;

/// A proxy between the open registry and its clients. It records requests, holds them on demand, and can go away like a registry
/// that is restarted: connections break, and new ones are refused.
struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_down: bool,
    /// Whether layers stop after [`PART`] bytes of each response.
    is_held: bool,
    requests: Vec<Request>,
    streams: Vec<TcpStream>,
}

/// A request, and the number of bytes of its response's body that were sent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    path: String,
    range: Option<String>,
    bytes: u64,
}

impl Proxy {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut proxy = Self { address: listener.local_addr().unwrap(), shared: Arc::default(), listening: None };
        proxy.listen(listener);
        proxy
    }

    fn listen(&mut self, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        self.listening = Some(thread::spawn(move || {
            for client in listener.incoming() {
                if shared.lock().is_down {
                    return;
                }
                let shared = Arc::clone(&shared);
                // An error here breaks the client's connection, and the client reports it.
                thread::spawn(move || shared.serve(client.unwrap()).ok());
            }
        }));
    }

    /// The reference of an artefact behind the proxy.
    fn named(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Makes layers stop in the middle.
    fn hold(&self) {
        self.shared.lock().is_held = true;
    }

    /// Lets layers continue.
    fn release(&self) {
        self.shared.lock().is_held = false;
        self.shared.changed.notify_all();
    }

    /// Breaks all connections and refuses new ones.
    fn down(&mut self) {
        {
            let mut state = self.shared.lock();
            for stream in state.streams.drain(..) {
                stream.shutdown(Shutdown::Both).ok();
            }
            // Only now, so that held responses are not sent any more.
            (state.is_down, state.is_held) = (true, false);
        }
        self.shared.changed.notify_all();
        // Wakes the listener, which checks `is_down` at each connection.
        TcpStream::connect(self.address).ok();
        self.listening.take().map(JoinHandle::join);
    }

    /// Listens again at the same address.
    fn up(&mut self) {
        self.shared.lock().is_down = false;
        let mut bound = Err(io::ErrorKind::AddrInUse.into());
        wait_until("the port to be free", || {
            bound = TcpListener::bind(self.address);
            bound.is_ok()
        });
        self.listen(bound.unwrap());
    }

    /// The requests for a layer: the range of each, and the number of bytes sent.
    fn layers(&self, digest: Digest) -> Vec<(Option<String>, u64)> {
        let end = format!("/blobs/{digest}");
        let requests = self.shared.lock().requests.clone();
        requests.into_iter().filter(|seen| seen.path.ends_with(&end)).map(|seen| (seen.range, seen.bytes)).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if self.listening.is_some() {
            self.down();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Serves a connection with a single request.
    fn serve(&self, client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let mut from_client = BufReader::new(client.try_clone()?);
        let asked = head(&mut from_client)?;
        let path = asked.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
        let field = |name: &str| {
            let fields = asked.iter().filter_map(|line| line.split_once(": "));
            let mut named = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
            named.next().map(|(_, value)| value.to_owned())
        };
        let mut registry = TcpStream::connect(&env().plain.host)?;
        for line in asked.iter().filter(|line| !line.to_ascii_lowercase().starts_with("connection:")) {
            write!(registry, "{line}\r\n")?;
        }
        write!(registry, "connection: close\r\n\r\n")?;
        let place = {
            let mut state = self.lock();
            if state.is_down {
                return Ok(());
            }
            for stream in [&client, &registry] {
                state.streams.push(stream.try_clone()?);
            }
            state.requests.push(Request { path: path.clone(), range: field("range"), bytes: 0 });
            state.requests.len() - 1
        };
        let mut from_registry = BufReader::new(registry);
        let mut to_client = &client;
        for line in head(&mut from_registry)? {
            write!(to_client, "{line}\r\n")?;
        }
        write!(to_client, "\r\n")?;
        let mut buffer = vec![0; 16 << 10];
        let mut sent = 0;
        loop {
            // Reads only up to the point where the response may have to stop.
            let room = if sent < PART { usize::try_from(PART - sent).unwrap().min(buffer.len()) } else { buffer.len() };
            let read = from_registry.read(&mut buffer[..room])?;
            if read == 0 {
                return client.shutdown(Shutdown::Both);
            }
            to_client.write_all(&buffer[..read])?;
            sent += u64::try_from(read).unwrap();
            let mut state = self.lock();
            state.requests[place].bytes = sent;
            if sent == PART {
                drop(self.changed.wait_while(state, |state| state.is_held).unwrap());
                if is_gone(&client)? {
                    return Ok(());
                }
            }
        }
    }
}

/// Whether the peer has closed its side. A write to it would not fail at once.
fn is_gone(client: &TcpStream) -> io::Result<bool> {
    client.set_nonblocking(true)?;
    let is_there = client.peek(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    client.set_nonblocking(false)?;
    Ok(!is_there)
}

/// The lines of an HTTP head.
fn head(stream: &mut impl BufRead) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    for line in stream.lines() {
        let line = line?;
        if line.is_empty() {
            return Ok(lines);
        }
        lines.push(line);
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

const MODULES: [&str; 3] = ["cpu-burst", "memory-qos", "memory-locality"];

/// A default module's digest, which is the digest of its artefact's only layer.
fn layer(name: &str) -> Digest {
    Digest::of(&fs::read(module(name)).unwrap())
}

fn size(name: &str) -> u64 {
    fs::metadata(module(name)).unwrap().len()
}

/// A process, killed when dropped.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Kills the process (SIGKILL).
    fn kill(&mut self) {
        self.0.kill().unwrap();
        let ended = self.0.wait().unwrap();
        assert_eq!(ended.code(), None, "it ended by itself before it was killed");
    }

    /// Waits for its end.
    fn ran(mut self) -> Ran {
        let text = |stream: &mut dyn Read| {
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        };
        let stdout = text(&mut self.0.stdout.take().unwrap());
        let stderr = text(&mut self.0.stderr.take().unwrap());
        Ran { code: self.0.wait().unwrap().code(), stdout, stderr }
    }

    /// Whether the process has a file open.
    fn has_open(&self, file: &Path) -> bool {
        let open = fs::read_dir(format!("/proc/{}/fd", self.0.id())).into_iter().flatten().flatten();
        open.into_iter().any(|fd| fs::read_link(fd.path()).is_ok_and(|open| open == file))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A store, inspected from outside.
struct Store(PathBuf);

impl Store {
    /// Path of the partial layer.
    fn part(&self, of: &str) -> PathBuf {
        self.0.join("ingest").join(layer(of).hex())
    }

    #[track_caller]
    fn wait_part(&self, of: &str) {
        wait_until("a part of the layer", || fs::metadata(self.part(of)).is_ok_and(|part| part.len() == PART));
    }

    /// The index's names. Checks that each blob matches its digest, and that everything named is complete.
    #[track_caller]
    fn check(&self) -> BTreeMap<String, Value> {
        let blobs = self.0.join("blobs/sha256");
        for name in names(&blobs) {
            assert_eq!(Digest::of(&fs::read(blobs.join(&name)).unwrap()).hex(), name);
        }
        let read = |digest: &Value| -> Value {
            let path = blobs.join(digest.as_str().unwrap().strip_prefix("sha256:").unwrap());
            serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
        };
        let index: Value = serde_json::from_slice(&fs::read(self.0.join("index.json")).unwrap()).unwrap();
        let mut named = BTreeMap::new();
        for entry in index["manifests"].as_array().unwrap() {
            let manifest = read(&entry["digest"]);
            for blob in manifest["layers"].as_array().unwrap().iter().chain([&manifest["config"]]) {
                let path = blobs.join(blob["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap());
                assert_eq!(fs::metadata(path).unwrap().len(), blob["size"].as_u64().unwrap(), "{blob}");
            }
            let name = entry["annotations"]["org.opencontainers.image.ref.name"].as_str().unwrap();
            assert!(named.insert(name.to_owned(), entry["digest"].clone()).is_none(), "{name} twice: {index}");
        }
        named
    }

    /// Partial and leftover files.
    fn parts(&self) -> BTreeSet<String> {
        names(&self.0.join("ingest"))
    }
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// A desk with a store, and modules behind a proxy.
struct Scene {
    proxy: Proxy,
    desk: Desk,
    store: Store,
}

impl Scene {
    /// Pushes the modules to `pulls/REPOSITORY/MODULE:1`.
    fn new(repository: &str) -> Self {
        let (proxy, desk) = (Proxy::start(), Desk::new());
        for name in MODULES {
            desk.push(&module(name), &format!("{}/pulls/{repository}/{name}:1", env().plain.host));
        }
        let store = Store(desk.path("store"));
        Self { proxy, desk, store }
    }

    fn named(&self, repository: &str, name: &str) -> String {
        self.proxy.named(&format!("pulls/{repository}/{name}:1"))
    }

    /// The command `qosm policy pull` into the store.
    fn pull(&self, reference: &str, to: &str) -> Command {
        let mut command = self.desk.policy(&["pull", reference, "--to", to, "-o", "json"]);
        command.arg("--store").arg(&self.store.0);
        command
    }

    /// Checks that the pulled file is the module, and that no partial file is left.
    #[track_caller]
    fn check(&self, ran: Ran, to: &str, name: &str) {
        ran.well();
        assert!(fs::read(self.desk.path(to)).unwrap() == fs::read(module(name)).unwrap(), "{to} is not {name}");
        assert_eq!(self.store.parts(), BTreeSet::new(), "left in `ingest`");
        self.store.check();
    }
}

#[test]
fn a_pull_that_is_killed_leaves_its_part_to_the_next_and_nothing_else() {
    let scene = Scene::new("killed");
    let reference = scene.named("killed", "cpu-burst");
    scene.proxy.hold();
    let mut pull = Running::start(&mut scene.pull(&reference, "a.wasm"));
    scene.store.wait_part("cpu-burst");
    pull.kill();
    scene.proxy.release();
    assert!(scene.store.check().is_empty(), "what is not there whole has no name");
    assert_eq!(scene.store.parts(), BTreeSet::from([layer("cpu-burst").hex()]));
    assert!(!scene.desk.path("a.wasm").exists());

    scene.check(run(&mut scene.pull(&reference, "a.wasm")), "a.wasm", "cpu-burst");
    let rest = size("cpu-burst") - PART;
    let range = Some(format!("bytes={PART}-"));
    assert_eq!(scene.proxy.layers(layer("cpu-burst")), [(None, PART), (range, rest)]);
    assert_eq!(scene.store.check().len(), 1);

    // The module is in the store: nothing is transferred again.
    scene.check(run(&mut scene.pull(&reference, "b.wasm")), "b.wasm", "cpu-burst");
    assert_eq!(scene.proxy.layers(layer("cpu-burst")).len(), 2);
}

#[test]
fn two_processes_that_pull_the_same_into_one_store_fetch_it_once() {
    let scene = Scene::new("same");
    let reference = scene.named("same", "cpu-burst");
    scene.proxy.hold();
    let first = Running::start(&mut scene.pull(&reference, "a.wasm"));
    scene.store.wait_part("cpu-burst");
    let second = Running::start(&mut scene.pull(&reference, "b.wasm"));
    wait_until("the second to wait for the first", || second.has_open(&scene.store.part("cpu-burst")));
    scene.proxy.release();
    let (first, second) = (first.ran(), second.ran());
    scene.check(first, "a.wasm", "cpu-burst");
    scene.check(second, "b.wasm", "cpu-burst");
    assert_eq!(scene.proxy.layers(layer("cpu-burst")), [(None, size("cpu-burst"))]);
    assert_eq!(scene.store.check().len(), 1);
}

#[test]
fn a_pull_that_waits_for_a_killed_one_resumes_it() {
    let scene = Scene::new("waits");
    let reference = scene.named("waits", "cpu-burst");
    scene.proxy.hold();
    let mut first = Running::start(&mut scene.pull(&reference, "a.wasm"));
    scene.store.wait_part("cpu-burst");
    let second = Running::start(&mut scene.pull(&reference, "b.wasm"));
    wait_until("the second to wait for the first", || second.has_open(&scene.store.part("cpu-burst")));
    first.kill();
    scene.check(second.ran(), "b.wasm", "cpu-burst");
    let seen = scene.proxy.layers(layer("cpu-burst"));
    let ranges: Vec<_> = seen.iter().map(|(range, _)| range.clone()).collect();
    // While it holds layers, the proxy sends one part per response.
    let parts = (0..size("cpu-burst").div_ceil(PART)).map(|part| (part > 0).then(|| format!("bytes={}-", part * PART)));
    assert_eq!(ranges, parts.collect::<Vec<_>>());
    assert_eq!(seen.iter().map(|(_, length)| length).sum::<u64>(), size("cpu-burst"), "nothing came twice");
}

#[test]
fn processes_that_pull_different_artefacts_at_once_do_not_wait_for_each_other() {
    let scene = Scene::new("different");
    scene.proxy.hold();
    let pulls = MODULES.map(|name| Running::start(&mut scene.pull(&scene.named("different", name), name)));
    // All pulls are in the middle of their layers now.
    for name in MODULES {
        scene.store.wait_part(name);
    }
    scene.proxy.release();
    for (pull, name) in pulls.into_iter().zip(MODULES) {
        let ran = pull.ran();
        assert_eq!(ran.code, Some(0), "{ran:#?}");
        assert!(fs::read(scene.desk.path(name)).unwrap() == fs::read(module(name)).unwrap(), "{name}");
        assert_eq!(scene.proxy.layers(layer(name)), [(None, size(name))]);
    }
    assert_eq!(scene.store.parts(), BTreeSet::new());
    let named: BTreeSet<_> = scene.store.check().into_keys().collect();
    let expected = MODULES.map(|name| scene.named("different", name));
    assert_eq!(named, BTreeSet::from(expected));
}

#[test]
fn a_registry_that_is_restarted_in_the_middle_is_gone_on_with() {
    let mut scene = Scene::new("restarted");
    let reference = scene.named("restarted", "cpu-burst");
    scene.proxy.hold();
    let pull = Running::start(&mut scene.pull(&reference, "a.wasm"));
    scene.store.wait_part("cpu-burst");
    scene.proxy.down();
    scene.proxy.up();
    scene.check(pull.ran(), "a.wasm", "cpu-burst");
    let seen = scene.proxy.layers(layer("cpu-burst"));
    assert_eq!(seen, [(None, PART), (Some(format!("bytes={PART}-")), size("cpu-burst") - PART)]);
}

#[test]
fn a_registry_that_goes_away_for_good_is_reported_and_its_part_is_kept() {
    let mut scene = Scene::new("gone");
    let reference = scene.named("gone", "cpu-burst");
    scene.proxy.hold();
    let pull = Running::start(&mut scene.pull(&reference, "a.wasm"));
    scene.store.wait_part("cpu-burst");
    scene.proxy.down();
    let said = pull.ran().badly();
    for word in [&reference, &scene.proxy.address.to_string(), "cannot be reached"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert_eq!((scene.store.check().len(), scene.desk.path("a.wasm").exists()), (0, false));
    scene.proxy.up();
    scene.check(run(&mut scene.pull(&reference, "a.wasm")), "a.wasm", "cpu-burst");
    let seen = scene.proxy.layers(layer("cpu-burst"));
    assert_eq!(seen, [(None, PART), (Some(format!("bytes={PART}-")), size("cpu-burst") - PART)]);
}

/// A separate tmpfs for a folder, in its own mount namespace: it goes away with the process that holds it, even if the test is killed.
struct Disk {
    holder: Child,
    folder: PathBuf,
}

impl Disk {
    fn mount(folder: &Path, bytes: u64) -> Self {
        fs::create_dir_all(folder).unwrap();
        // The holder ends when its standard input, a pipe of this process, closes.
        let script = format!("mount -t tmpfs -o size={bytes} none \"$0\" && echo mounted && exec cat");
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]).arg(folder);
        let mut holder = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let disk = Self { holder, folder: folder.to_path_buf() };
        assert_eq!(said, "mounted\n", "this machine does not allow a mount of its own");
        disk
    }

    /// Runs a command in the disk's mount namespace.
    fn within(&self, command: &Command) -> Command {
        let mut within = Command::new("nsenter");
        within.args(["--preserve-credentials", "--user", "--mount", "--target", &self.holder.id().to_string()]);
        within.arg("--").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => within.env(name, value),
                None => within.env_remove(name),
            };
        }
        within
    }

    /// The folder, from outside.
    fn seen(&self) -> PathBuf {
        Path::new("/proc").join(self.holder.id().to_string()).join("root").join(self.folder.strip_prefix("/").unwrap())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.holder.kill().ok();
        self.holder.wait().ok();
    }
}

#[test]
fn a_full_disk_is_reported_with_the_store_and_the_way_out_and_forgotten_once_there_is_room() {
    let scene = Scene::new("full");
    let reference = scene.named("full", "cpu-burst");
    let disk = Disk::mount(&scene.store.0, 1 << 20);
    let store = Store(disk.seen());
    let filler = store.0.join("filler");
    fs::write(&filler, vec![0; (1 << 20) - usize::try_from(PART).unwrap()]).unwrap();

    let to = scene.desk.path("a.wasm");
    let mut pull = disk.within(&scene.pull(&reference, &to.display().to_string()));
    let said = run(&mut pull).badly();
    for word in [&scene.store.0.display().to_string(), "No space left on device", "make room there"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert_eq!((store.check().len(), to.exists()), (0, false));
    let part = fs::metadata(store.part("cpu-burst")).unwrap().len();

    fs::remove_file(&filler).unwrap();
    run(&mut disk.within(&scene.pull(&reference, &to.display().to_string()))).well();
    assert!(fs::read(to).unwrap() == fs::read(module("cpu-burst")).unwrap());
    assert_eq!((store.parts().len(), store.check().len()), (0, 1));
    let asked: Vec<_> = scene.proxy.layers(layer("cpu-burst")).into_iter().map(|(range, _)| range).collect();
    assert_eq!(asked, [None, Some(format!("bytes={part}-"))], "it is gone on with, and not tried in vain");
}

/// An agent with one policy, which reports over its socket.
struct Agent {
    running: Running,
    socket: PathBuf,
    log: PathBuf,
}

impl Drop for Agent {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the agent said:\n{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

impl Agent {
    fn start(desk: &Desk, module: &str) -> Self {
        let policy = json!({"name": "burst", "module": module, "grants": ["node", "cpu-stat", "cpu-bandwidth"]});
        fs::write(desk.path("agent.json"), json!({"policies": [policy]}).to_string()).unwrap();
        for folder in ["pods", "state"] {
            fs::create_dir_all(desk.path(folder)).unwrap();
        }
        let socket = desk.path("admin.sock");
        let mut command = qosm();
        command.arg("agent").env("HOME", desk.path("."));
        for (flag, value) in [
            ("--pods", desk.path("pods")),
            ("--state-dir", desk.path("state")),
            ("--admin-socket", socket.clone()),
            ("--agent-config", desk.path("agent.json")),
            ("--metrics-listen", "none".into()),
            ("--cgroup-root", desk.cgroup_root().into()),
        ] {
            command.arg(flag).arg(value);
        }
        let log = fs::File::create(desk.path("agent.log")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Self { running: Running(child), socket, log: desk.path("agent.log") }
    }

    fn health(&self) -> Value {
        let ran = run(qosm().args(["get", "policies", "-o", "json", "--admin-socket"]).arg(&self.socket));
        let all: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        all[0]["health"].clone()
    }
}

#[test]
fn an_agent_killed_in_the_middle_of_a_pull_resumes_it_and_removes_stale_parts() {
    let scene = Scene::new("agent");
    let reference = format!("oci://{}", scene.named("agent", "cpu-burst"));
    let store = Store(scene.desk.path("state/artifacts"));
    scene.proxy.hold();
    let mut agent = Agent::start(&scene.desk, &reference);
    store.wait_part("cpu-burst");
    assert_ne!(agent.health(), json!("running"), "on half a module");
    agent.running.kill();
    drop(agent);
    scene.proxy.release();
    // Leftovers of killed processes, too old to be continued.
    for left in [layer("memory-qos").hex(), ".newleft".to_owned()] {
        let file = fs::File::create(store.0.join("ingest").join(left)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    }

    let agent = Agent::start(&scene.desk, &reference);
    wait_until("the module", || agent.health() == json!("running"));
    wait_until("what is left over to go", || store.parts().is_empty());
    assert_eq!(store.check().len(), 1);
    let seen = scene.proxy.layers(layer("cpu-burst"));
    assert_eq!(seen, [(None, PART), (Some(format!("bytes={PART}-")), size("cpu-burst") - PART)]);
}
