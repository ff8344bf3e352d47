//! The page of `qosm ui` in a real browser: its content is compared with the recording. Needs Debian's `chromium`, which `cargo
//! xtask setup --for browser` installs. With UPDATE_DOCS=1 it regenerates the pictures of the documentation.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod picture;
mod recording;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::picture::Picture;

const QOSM: &str = env!("CARGO_BIN_EXE_qosm");
const RECORDING: &str = "examples/replay/burst.jsonl";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn qosm() -> Command {
    let mut command = Command::new(QOSM);
    if let Some(modules) = std::env::var_os("QOSM_MODULES") {
        command.env("QOSM_MODULE_DIR", modules);
    }
    command
}

/// The server of a page; it ends with the test.
struct Page {
    server: Child,
    url: String,
}

impl Page {
    fn of(recording: &Path) -> Self {
        Self::served(qosm().arg("ui").arg(recording))
    }

    fn served(command: &mut Command) -> Self {
        let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { server, url: url.trim().to_owned() }
    }

    /// The document after all of its scripts have run.
    fn document(&self, place: &str) -> String {
        let output = self.browser(place, &["--dump-dom"]);
        String::from_utf8(output).unwrap()
    }

    /// The HTTP status of a request without the token.
    fn status_for_a_stranger(&self, path: &str) -> String {
        let at = self.url.strip_prefix("http://").unwrap().split('/').next().unwrap();
        let mut stream = TcpStream::connect(at).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    }

    fn browser(&self, place: &str, flags: &[&str]) -> Vec<u8> {
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Command::new("chromium");
        browser.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=15000"]);
        // So that the browser sends requests only to the page's server.
        browser.args(["--disable-quic", "--no-first-run", "--disable-background-networking"]);
        browser.args(["--disable-component-update", "--disable-sync"]);
        browser.arg(format!("--user-data-dir={}", profile.path().display())).args(flags);
        let output = browser.arg(format!("{}{place}", self.url)).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Escapes text as in an HTML document.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[test]
fn the_page_says_what_the_recording_says() {
    let recording = repository(RECORDING);
    let replayed = qosm().arg("replay").arg(&recording).output().unwrap();
    let lines = String::from_utf8(replayed.stdout).unwrap();
    let decisions: Vec<Value> = lines
        .lines()
        .flat_map(|line| serde_json::from_str::<Value>(line).unwrap()["decisions"].as_array().unwrap().clone())
        .filter(|row| row["level"] == "container")
        .collect();
    let last = qosm().args(["top", "-o", "json", "--replay"]).arg(&recording).output().unwrap();
    let last: Value = serde_json::from_slice(&last.stdout).unwrap();
    let row = &last["containers"][0];
    let name = format!("{}/{}", row["pod"].as_str().unwrap(), row["container"].as_str().unwrap());

    let page = Page::of(&recording);
    let strangers = ["/page.js", "/api/overview", "/api/overview?token=0"].map(|path| page.status_for_a_stranger(path));
    assert_eq!(strangers, ["200", "403", "403"]);
    let list = page.document("");
    assert!(list.contains(&name), "{list}");
    assert!(list.contains(&format!("<td class=\"number\">{:.2}</td>", row["cpus"].as_f64().unwrap())), "{list}");
    assert!(list.contains("cpu-burst") && list.contains("data-state=\"whole\""), "{list}");
    assert!(list.contains("after 00:00:14: CPUs"), "it does not say when it was made: {list}");

    let document = page.document(&format!("#container={}", name.replace('/', "%2F")));
    // The first line of a recording only shows the initial state.
    for decision in decisions.iter().skip(decisions.len() / 2) {
        let (reason, knob) = (decision["reason"].as_str().unwrap(), decision["knob"].as_str().unwrap());
        assert!(document.contains(&escaped(reason)), "{reason}: {document}");
        assert!(document.contains(&format!("{knob} = {}", decision["value"])), "{decision}: {document}");
        // The row has the module with the beginning of its digest, and the layer as `explain` shows it; the
        // details below have them in full.
        let (module, digest) = decision["module"].as_str().unwrap().split_once(' ').unwrap();
        let origin = format!(
            "<td class=\"name\">{}</td><td class=\"module\">{module}\n{}</td><td>annotation koordinator.sh/cpuBurst</td><td>{}</td>",
            decision["policy"].as_str().unwrap(),
            &digest[..19],
            escaped(reason)
        );
        assert!(document.contains(&origin), "{origin}: {document}");
        assert!(document.contains(&format!("{module}: {digest}")), "{document}");
    }
    assert!(document.contains("This recording has no shadow, so nothing is compared"), "{document}");
    assert_eq!(document.matches("class=\"uplot").count(), 3, "a chart each: {document}");
    assert!(document.contains("Not known: memory."), "{document}");
    assert!(!document.contains("1970-"), "{document}");
}

#[test]
fn a_shadow_stands_beside_what_is_in_force() {
    let lines = recording::lines();
    let (facts, ticks) = lines.split_once('\n').unwrap();
    let mut facts: Value = serde_json::from_str(facts).unwrap();
    facts["policies"].as_array_mut().unwrap().extend([
        json!({"name": "next", "module": "builtin:cpu-burst", "mode": "shadow", "config": {"profile": "responsive"}}),
        json!({"name": "same", "module": "builtin:memory-qos", "mode": "shadow"}),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.jsonl");
    // Up to the raise of the quota, before it comes down again.
    let ticks: Vec<&str> = ticks.lines().take(50).collect();
    std::fs::write(&file, format!("{facts}\n{}\n", ticks.join("\n"))).unwrap();
    let replayed = qosm().arg("replay").arg(&file).output().unwrap();
    let replayed = String::from_utf8(replayed.stdout).unwrap();
    let of_all = |what: &str| -> Vec<Value> {
        let rows =
            |line: &str| serde_json::from_str::<Value>(line).unwrap()[what].as_array().cloned().unwrap_or_default();
        replayed.lines().flat_map(rows).collect()
    };
    let is_quota = |row: &&Value| row["knob"] == "cpu.quota";
    let shadows = of_all("shadows");
    let wanted = shadows.iter().rev().filter(|row| row["subject"] == "shop/checkout/app").find(is_quota).unwrap();
    let decisions = of_all("decisions");
    let in_force = decisions.iter().rev().filter(|row| row["pod"] == "checkout" && row["level"] == "container");
    let in_force = in_force.rev().rfind(is_quota).unwrap();

    let page = Page::of(&file);
    let document = page.document("#container=shop%2Fcheckout%2Fapp");
    assert!(document.contains("data-state=\"whole\""), "the recording is not played to its end: {document}");
    let word =
        if wanted["value"] == in_force["value"] { "<td>same</td>" } else { "<td class=\"not-done\">different</td>" };
    let row = format!(
        "<td class=\"name\">next</td><td>cpu.quota</td><td>{0}</td><td>{0}</td><td>{1}</td>{word}",
        in_force["value"], wanted["value"]
    );
    assert!(document.contains(&row), "{row}: {document}");
    assert!(document.contains(&escaped(wanted["reason"].as_str().unwrap())), "{wanted}: {document}");
    // A policy that is equal throughout is distinguished from one that is not compared.
    assert!(document.contains("<td>memory-qos</td>") && document.contains("<td>cpu-burst</td>"), "{document}");
    let nothing = "<td class=\"number\">0</td><td class=\"number\">51</td><td class=\"number\">0</td>";
    assert!(document.contains(nothing), "50 seconds and the beginning, none with a difference: {document}");
    assert!(!document.contains("has no shadow") && !document.contains("not compared"), "{document}");
}

#[test]
fn a_recording_that_says_when_it_was_made_is_shown_with_dates() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.jsonl");
    // 81 seconds, past midnight.
    let lines = recording::lines().replacen('{', r#"{"time": "2026-11-25T23:59:30Z", "#, 1);
    std::fs::write(&file, lines).unwrap();
    let page = Page::of(&file);
    let document = page.document("#container=shop%2Fcheckout%2Fapp");
    assert!(document.contains("data-state=\"whole\""), "the recording is not played to its end: {document}");
    assert!(document.contains("2026-11-26T00:00:51Z: CPUs"), "{document}");
    // From the 53rd second on, the burst allowance is used up.
    assert!(document.contains("2026-11-26T00:00:2"), "a decision has no date: {document}");
    assert!(!document.contains("after 0"), "{document}");

    let document = page.document("#container=batch%2Ftrain%2Fapp");
    assert!(document.contains("Not throttled: no quota."), "{document}");
    assert!(!document.contains("Not known"), "{document}");
}

/// Pictures differ slightly between versions of browsers and fonts, so single pixels are not compared.
#[test]
fn the_pictures_in_the_book_are_of_this_page() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("node.jsonl"), recording::lines()).unwrap();
    let page = Page::served(qosm().args(["ui", "node.jsonl"]).current_dir(folder.path()));
    let chosen = "#container=shop%2Fcheckout%2Fapp";
    let document = page.document(chosen);
    assert!(document.contains("its burst allowance of cfsQuotaBurstPeriodSeconds is used up"), "{document}");
    assert!(document.contains("data-state=\"whole\""), "the recording is not played to its end: {document}");

    for (name, place, size, scheme) in
        [("ui.png", chosen, [1000, 1425], "light"), ("ui-dark.png", "", [1080, 560], "dark")]
    {
        let drawn = folder.path().join(name);
        let flags = [
            format!("--screenshot={}", drawn.display()),
            format!("--window-size={},{}", size[0], size[1]),
            // Chromium's flag for the color scheme that a desktop prefers; pages follow it if they support it.
            if scheme == "dark" { "--force-dark-mode" } else { "--hide-scrollbars" }.to_owned(),
            "--hide-scrollbars".to_owned(),
        ];
        page.browser(place, &flags.each_ref().map(String::as_str));
        let (drawn, kept) = (std::fs::read(drawn).unwrap(), repository("docs").join(name));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&kept, &drawn).unwrap();
        }
        let kept = std::fs::read(kept).unwrap_or_default();
        let again = "UPDATE_DOCS=1 cargo xtask test --only browser";
        for (whose, bytes) in [("drawn now", drawn), ("in docs", kept)] {
            let what = format!("{name} as it is {whose} ({again})");
            // Pictures in the book must stay small; other fonts may take more.
            let most = if whose == "drawn now" { 200_000 } else { 150_000 };
            assert!((10_000..most).contains(&bytes.len()), "{what}: {} bytes", bytes.len());
            let picture = Picture::decode(&bytes);
            assert_eq!([picture.width, picture.height], size, "{what}");
            assert!(picture.colours() > 50, "{what} is blank: {} colours", picture.colours());
            assert_eq!(picture.ground() < 128, scheme == "dark", "{what}");
            // A canvas draws invalid colours in black.
            assert!(!picture.has([0, 0, 0]), "{what}");
        }
    }
}

/// Names of pods and containers are validated when they are read; the remaining outside text is a file's name, and why it cannot be read.
#[test]
fn markup_is_text() {
    let markup = "<img src=x onerror=document.title='taken'>";
    let facts = json!({"host": {"cgroup": "v2", "driver": "cgroupfs", "cpus": 4}, "policies": [{"name": "cpu-burst"}]});
    let tick = json!({"containers": [{"pod": format!("default/{markup}"), "container": "app"}]});
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(format!("{markup}.jsonl"));
    std::fs::write(&file, format!("{facts}\n{{}}\n{tick}\n")).unwrap();
    let document = Page::of(&file).document("");
    assert!(document.contains(&escaped(&format!("{markup}.jsonl"))), "{document}");
    assert!(document.contains(&escaped(&format!("there is no pod `default/{markup}`"))), "{document}");
    assert!(!document.contains("<img") && !document.contains(">taken<"), "{document}");
}
