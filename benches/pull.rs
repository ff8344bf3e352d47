//! Time from a module reference that is new to a node until the module's first decision.
//!
//! A registry on loopback serves CPU Burst. The time includes the requests, the digests, the store's `fsync`s, the compiler in a child
//! process, and the first settings for 100 pods. Each round begins with an empty store.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use qosm_agent::LoadedPolicy;
use qosm_benches::figures::{self, Figure, Figures};
use qosm_benches::{length, modules, run_if_wanted, workload};
use qosm_engine::{Compiler, Engine, Memory, compile_child_main};
use qosm_model::digest::Digest;
use qosm_registry::{Artifact, Label, Location, RegistrySettings, Store};

const PODS: u32 = 100;
const ROUNDS: usize = 10;
/// The argument that makes this program the compiler's child process.
const COMPILE: &str = "compile-module";

fn main() -> ExitCode {
    if std::env::args_os().nth(1).as_deref() == Some(OsStr::new(COMPILE)) {
        return compile_child_main();
    }
    run_if_wanted("pull", run)
}

fn run() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let program = std::env::current_exe().context("this program does not know where it lies")?;
    let compiler = Compiler::Child {
        program,
        args: vec![COMPILE.into()],
        memory: Memory::default(),
        cpu: Compiler::cpu_time(None),
    };
    let served = tempfile::tempdir().context("no folder to serve")?;
    let artifact = runtime.block_on(serve(served.path()))?;
    let pods = workload::pods(PODS);
    let (mut pulled, mut compiled, mut decided, mut all) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..length(ROUNDS, 1) {
        let store_dir = tempfile::tempdir().context("no folder for the store")?;
        let engine = Engine::new()?;
        let like = modules::load(&engine, "cpu-burst", None, &compiler)?;
        let begun = Instant::now();
        let store = Store::open(RegistrySettings::default(), store_dir.path())?;
        let found = runtime.block_on(store.pull(&artifact, None, false, &mut ()))?;
        pulled.push(millis(begun.elapsed()));
        let begun_compiling = Instant::now();
        let module = engine.load(&found.module, None, &compiler)?;
        compiled.push(millis(begun_compiling.elapsed()));
        let begun_deciding = Instant::now();
        let (_, staged) = workload::first_decision(&engine, &LoadedPolicy { module, ..like }, &pods)?;
        decided.push(millis(begun_deciding.elapsed()));
        all.push(millis(begun.elapsed()));
        anyhow::ensure!(!staged.settings.is_empty(), "the module wants nothing for {PODS} pods");
    }
    let figures = [("pull ms", pulled), ("compile ms", compiled), ("decide ms", decided), ("all ms", all)];
    let figures: Figures =
        figures.into_iter().map(|(name, measured)| (name.to_owned(), Figure::of(measured))).collect();
    println!("pull/cpu-burst/{PODS}");
    for (name, Figure { median, lower, upper }) in &figures {
        println!("    {name}: {median:.1} ({lower:.1}–{upper:.1})");
    }
    figures::write("pull", &figures)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Serves CPU Burst as an artefact. Returns its location.
async fn serve(folder: &Path) -> anyhow::Result<Location> {
    let wasm = std::fs::read(modules::directory()?.join("cpu-burst.wasm")).context("no module to serve")?;
    let label = Label { name: "cpu-burst".to_owned(), created: "1970-01-01T00:00:00Z".to_owned(), ..Label::default() };
    let artifact = Artifact::pack(wasm, label)?;
    let layout = folder.join("layout");
    let to: Location = format!("oci-layout:{}:1", layout.display()).parse()?;
    let store = Store::open(RegistrySettings::default(), &folder.join("store"))?;
    store.push(&artifact, &to, &mut ()).await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.context("no port")?;
    let host = listener.local_addr().context("no address")?;
    let app = Router::new().fallback(answer).with_state(Arc::new(layout.join("blobs/sha256")));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(format!("oci://{host}/policies/cpu-burst@{}", artifact.digest()).parse()?)
}

/// Answers requests for a manifest or a blob by its digest, as a registry does.
async fn answer(State(blobs): State<Arc<PathBuf>>, request: Request<Body>) -> Response {
    let path = request.uri().path();
    let asked = path.rsplit('/').next().and_then(|last| last.parse::<Digest>().ok());
    let Some(digest) = asked else { return StatusCode::OK.into_response() };
    let text = digest.to_string();
    let Some(bytes) = text.strip_prefix("sha256:").and_then(|hex| std::fs::read(blobs.join(hex)).ok()) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let kind = if path.contains("/manifests/") {
        "application/vnd.oci.image.manifest.v1+json"
    } else {
        "application/octet-stream"
    };
    ([(header::CONTENT_TYPE, kind.to_owned()), (header::HeaderName::from_static("docker-content-digest"), text)], bytes)
        .into_response()
}
