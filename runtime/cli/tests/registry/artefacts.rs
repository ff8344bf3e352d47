//! Exchange of artefacts: pushed by qosm and pulled by other tools, and vice versa.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::env::{Keys, crane, env, qosm, run, skopeo};

/// A user's machine: a home folder, which is also the working directory.
pub(crate) struct Desk {
    folder: TempDir,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// A `--cgroup-root` that does not exist, for this desk's agents: only one agent may use a root.
    pub(crate) fn cgroup_root(&self) -> String {
        let folder = self.path(".").canonicalize().unwrap();
        format!("/qosm-none-{}", folder.file_name().unwrap().display().to_string().trim_start_matches('.'))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `qosm policy …`.
    pub(crate) fn policy(&self, args: &[&str]) -> Command {
        let mut command = qosm();
        command.env("HOME", self.folder.path()).env_remove("XDG_CACHE_HOME").env_remove("XDG_CONFIG_HOME");
        command.arg("policy").args(args).current_dir(self.folder.path());
        command
    }

    /// The same, with JSON output.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let text = run(&mut self.policy(&[args, &["-o", "json"]].concat())).well();
        serde_json::from_str(&text).unwrap()
    }

    /// Pushes a module. Returns the artefact's digest.
    #[track_caller]
    pub(crate) fn push(&self, module: &Path, to: &str) -> String {
        let report = self.json(&["push", &module.display().to_string(), to]);
        report["digest"].as_str().unwrap().to_owned()
    }

    /// Installs the passwords for the registries.
    pub(crate) fn log_in(&self) {
        let folder = self.path(".docker");
        fs::create_dir_all(&folder).unwrap();
        fs::copy(env().docker_config.join("config.json"), folder.join("config.json")).unwrap();
    }
}

/// A default module's file.
pub(crate) fn module(name: &str) -> PathBuf {
    Path::new(&std::env::var_os("QOSM_MODULES").unwrap()).join(format!("{name}.wasm"))
}

#[test]
fn what_we_push_others_take_and_the_same_module_is_the_same_artefact() {
    let (desk, host) = (Desk::new(), &env().plain.host);
    let reference = format!("{host}/ours/cpu-burst:0.1.0");
    let digest = desk.push(&module("cpu-burst"), &reference);
    assert_eq!(Desk::new().push(&module("cpu-burst"), &reference), digest, "another machine, another time");
    assert_ne!(desk.push(&module("memory-qos"), &format!("{host}/ours/memory-qos:0.1.0")), digest);

    run(crane().args(["validate", "--insecure", "--remote", &reference])).well();
    assert_eq!(run(crane().args(["digest", "--insecure", &reference])).well().trim(), digest);
    let copy = format!("docker://{host}/ours/by-skopeo:0.1.0");
    run(skopeo()
        .args(["copy", "--src-tls-verify=false", "--dest-tls-verify=false"])
        .arg(format!("docker://{reference}"))
        .arg(copy))
    .well();
    desk.json(&["pull", &format!("{host}/ours/by-skopeo@{digest}"), "--to", "by-skopeo.wasm"]);
    assert_eq!(fs::read(desk.path("by-skopeo.wasm")).unwrap(), fs::read(module("cpu-burst")).unwrap());

    let report = desk.json(&["inspect", &reference]);
    assert_eq!(report["artifact"]["digest"], digest);
    assert_eq!(report["artifact"]["config"]["os"], "wasip2");
    assert_eq!(report["artifact"]["annotations"]["io.qosm.policy.contract"], "qosm:policy@0.1.3");
    assert!(
        report["artifact"]["config"]["component"]["imports"].to_string().contains("qosm:policy/cpu-bandwidth@"),
        "{report}"
    );
    assert_eq!(report["grants"], serde_json::json!(["node", "cpu-stat", "cpu-bandwidth"]));
    assert_eq!(run(&mut desk.policy(&["ls", &format!("{host}/ours/cpu-burst")])).well(), "0.1.0\n");
}

#[test]
fn what_others_push_we_take() {
    let (desk, host) = (Desk::new(), &env().plain.host);
    let wasm = fs::read(module("cpu-burst")).unwrap();
    let take = |reference: &str| {
        desk.json(&["pull", reference, "--to", "taken.wasm"]);
        assert!(fs::read(desk.path("taken.wasm")).unwrap() == wasm, "{reference}");
    };

    // An OPA bundle and a proxy-wasm image are images with one file in their last layer.
    for member in ["policy.wasm", "plugin.wasm"] {
        fs::write(desk.path(member), &wasm).unwrap();
        let layer = desk.path(&format!("{member}.tar.gz"));
        run(Command::new("tar").arg("-C").arg(desk.path(".")).arg("-czf").arg(&layer).arg(member)).well();
        let image = format!("{host}/theirs/{}:0.1.0", member.replace('.', "-"));
        run(crane().args(["append", "--insecure", "--oci-empty-base", "--new_tag", &image, "--new_layer"]).arg(&layer))
            .well();
        take(&image);
    }
}

#[test]
fn what_is_refused_is_reported_with_the_reference_and_the_way_out() {
    let (desk, host) = (Desk::new(), &env().plain.host);
    let (locked, tls) = (&env().locked.host, &env().tls.host);
    let file = module("cpu-burst").display().to_string();
    fs::write(desk.path("text.wasm"), "no module").unwrap();
    desk.push(&module("cpu-burst"), &format!("{host}/refused/a:1"));
    let nothing = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let cases: [(&[&str], i32, &[&str]); 9] = [
        (&["push", &file, &format!("{locked}/a:1")], 1, &[locked, "anonymous", "docker login"]),
        (&["pull", &format!("{tls}/a:1")], 1, &[tls, "HTTP request to an HTTPS server"]),
        (&["pull", &format!("{host}/refused/a:2")], 1, &["refused/a:2", "no such tag"]),
        (&["pull", &format!("{host}/refused/a@{nothing}")], 1, &["no such manifest"]),
        (&["push", "text.wasm", &format!("{host}/refused/b:1")], 1, &["text.wasm is not pushed", "--force"]),
        (&["push", &file, "refused/b:1"], 2, &["names no registry"]),
        (&["push", &file, &format!("{host}/refused/b")], 2, &["neither a tag nor a digest"]),
        (&["verify", &format!("{host}/refused/a:1")], 2, &["--key"]),
        (&["pull", "127.0.0.1:1/a:1"], 1, &["127.0.0.1:1", "cannot be reached"]),
    ];
    for (args, code, words) in cases {
        let ran = run(&mut desk.policy(args));
        assert_eq!(ran.code, Some(code), "{args:?}: {ran:#?}");
        for word in words {
            assert!(ran.stderr.contains(word), "{args:?}: {word}: {}", ran.stderr);
        }
    }
    assert!(!desk.path("a.wasm").exists() && !desk.path("cpu-burst.wasm").exists(), "nothing half done");
}

#[test]
fn a_password_and_an_authority_are_had_from_where_people_keep_them() {
    let desk = Desk::new();
    desk.log_in();
    let locked = format!("{}/ours/a:1", env().locked.host);
    desk.push(&module("cpu-burst"), &locked);
    desk.json(&["pull", &locked, "--to", "a.wasm"]);

    let (tls, ca) = (format!("{}/ours/a:1", env().tls.host), env().tls.ca.display().to_string());
    let report = run(&mut desk.policy(&["push", &module("cpu-burst").display().to_string(), &tls, "--ca", &ca])).well();
    assert!(report.contains("pinned  oci://"), "{report}");
    let settings = serde_json::json!({"hosts": [{"registry": env().tls.host, "ca": ca}]});
    fs::write(desk.path("registries.yaml"), settings.to_string()).unwrap();
    desk.json(&["pull", &tls, "--to", "b.wasm", "--registries", "registries.yaml"]);

    // As a mounted pull secret, and from the environment.
    let stranger = Desk::new();
    fs::create_dir_all(stranger.path("secrets/one")).unwrap();
    fs::copy(env().docker_config.join("config.json"), stranger.path("secrets/one/.dockerconfigjson")).unwrap();
    let settings = serde_json::json!({"credentials": [stranger.path("secrets")]});
    fs::write(stranger.path("registries.yaml"), settings.to_string()).unwrap();
    stranger.json(&["pull", &locked, "--to", "c.wasm", "--registries", "registries.yaml"]);
    let (host, user, password) = (&env().locked.host, &env().locked.username, &env().locked.password);
    let mut by_environment = stranger.policy(&["ls", &format!("{host}/ours/a")]);
    by_environment.env("QOSM_REGISTRY_HOST", host).env("QOSM_REGISTRY_USERNAME", user);
    assert_eq!(run(by_environment.env("QOSM_REGISTRY_PASSWORD", password)).well(), "1\n");
}

#[test]
fn an_artefact_travels_with_its_signatures_where_no_network_goes() {
    let (desk, keys) = (Desk::new(), Keys::new("release"));
    let from = format!("{}/travel/a:1", env().plain.host);
    let digest = desk.push(&module("cpu-burst"), &from);
    keys.sign(&format!("{}/travel/a@{digest}", env().plain.host), true, &[]);
    keys.sign(&format!("{}/travel/a@{digest}", env().plain.host), false, &[]);
    let key = keys.public();
    desk.json(&["copy", &from, "oci-layout:folder:1"]);
    desk.json(&["copy", &from, "oci-layout:archive.tar:1"]);
    for (way, to) in [
        ("oci-layout:folder:1", format!("{}/travelled/a:1", env().plain.host)),
        ("oci-layout:archive.tar:1", format!("{}/travelled/a:1", env().referrers.host)),
    ] {
        let verified = desk.json(&["verify", way, "--key", &key]);
        assert_eq!(verified["digest"], digest.as_str(), "{verified}");
        let copied = desk.json(&["copy", way, &to]);
        assert_eq!((&copied["digest"], &copied["signatures"]), (&digest.as_str().into(), &2.into()), "{copied}");
        let verified = Desk::new().json(&["verify", &to, "--key", &key]);
        let signed = verified["trusted"]["signed"].as_array().unwrap();
        assert_eq!(signed.len(), 2, "in both formats: {verified}");
        keys.verify(&format!("{}@{digest}", to.trim_end_matches(":1")));
    }
    let listed = fs::read_to_string(desk.path("folder/index.json")).unwrap();
    assert!(listed.contains("sigstore.bundle") && !desk.path("folder/ingest").exists(), "{listed}");
}
