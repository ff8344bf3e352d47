//! Verbs for authors: `qosm policy …` runs `qosm-policy`, whose own tests are beside its source.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use memchr::memmem;
use rustix::process::{Pid, Signal, kill_process};

use crate::qosm::{QOSM, Run, finish};

/// Folders with `qosm` under another path, and with a `qosm-policy` only where a test puts one.
struct Installed {
    folder: tempfile::TempDir,
}

impl Installed {
    fn new() -> Self {
        // On the same file system, so that the program can be linked.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for name in ["bin", "elsewhere"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::hard_link(QOSM, folder.path().join("bin/qosm")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Installs a script in the place of the real program.
    fn stand_in(&self, folder: &str, does: &str) {
        let file = self.path(folder).join("qosm-policy");
        fs::write(&file, format!("#!/bin/sh\n{does}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn qosm(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.path("bin/qosm"));
        command.args(args).env_clear().env("PATH", "/nowhere:/bin:/usr/bin");
        command
    }

    fn run(&self, args: &[&str], stdin: &str) -> Run {
        finish(self.qosm(args), stdin)
    }
}

/// Prints one argument per line, then standard input; the exit code is 7.
const TELLS: &str = r#"for word in "$@"; do echo "[$word]"; done; cat; exit 7"#;

#[test]
fn arguments_input_and_exit_code_are_those_of_the_program_that_answers() {
    let installed = Installed::new();
    installed.stand_in("bin", TELLS);
    for (typed, handed) in [
        (&["policy", "run", "--facts", "-", "-o", "json"][..], "[run]\n[--facts]\n[-]\n[-o]\n[json]\n"),
        (&["policy", "test", "--help"], "[test]\n[--help]\n"),
        (&["policy", "new", "--version"], "[new]\n[--version]\n"),
        (&["policy", "annotate", "", "--", "--odd", "a b"], "[annotate]\n[]\n[--]\n[--odd]\n[a b]\n"),
        (&["policy", "help", "lint"], "[lint]\n[--help]\n"),
        (&["help", "policy", "lint"], "[lint]\n[--help]\n"),
        (&["help", "resctrl", "emulate"], "[resctrl]\n[emulate]\n[--help]\n"),
        (&["resctrl", "emulate", "/tmp/x", "--stepped"], "[resctrl]\n[emulate]\n[/tmp/x]\n[--stepped]\n"),
        (&["demo", "resctrl", "--seconds", "1"], "[demo]\n[resctrl]\n[--seconds]\n[1]\n"),
    ] {
        let ran = installed.run(typed, "what was piped in");
        assert_eq!((ran.code, ran.stdout.as_str()), (7, format!("{handed}what was piped in").as_str()), "{typed:?}");
        assert_eq!(ran.stderr, "", "{typed:?}");
    }
}

#[test]
fn a_signal_ends_the_called_program_and_reaches_the_caller() {
    let installed = Installed::new();
    installed.stand_in("bin", "echo $$ $QOSM_BIN; exec sleep 600");
    let mut child = installed.qosm(&["policy", "bench"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut said).unwrap();
    let itself = installed.path("bin/qosm").canonicalize().unwrap();
    assert_eq!(
        said,
        format!("{} {}\n", child.id(), itself.display()),
        "it is the same process, and knows who started it"
    );
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
}

#[test]
fn the_program_beside_qosm_counts_before_one_on_the_path() {
    let installed = Installed::new();
    installed.stand_in("elsewhere", "echo elsewhere");
    let path = format!("relative:{}:/bin", installed.path("elsewhere").display());
    let typed = |installed: &Installed| {
        let mut command = installed.qosm(&["policy", "build"]);
        command.env("PATH", &path);
        finish(command, "").stdout
    };
    assert_eq!(typed(&installed), "elsewhere\n");
    installed.stand_in("bin", "echo beside");
    assert_eq!(typed(&installed), "beside\n");
}

#[test]
fn without_that_program_it_is_said_what_to_install_and_all_else_works() {
    let installed = Installed::new();
    for (typed, verb) in [
        (&["policy", "new", "mine", "--lang", "rust"][..], "`qosm policy new`"),
        (&["resctrl", "emulate", "/tmp/x"], "`qosm resctrl emulate`"),
        (&["help", "policy", "push"], "`qosm policy push`"),
    ] {
        let ran = installed.run(typed, "");
        ran.says(1, &[verb, "`qosm-policy`", "bin/qosm", "PATH", "make build", "cargo install"]);
        assert_eq!(ran.stdout, "");
    }
    // The program exists, but cannot be started.
    fs::write(installed.path("bin/qosm-policy"), "").unwrap();
    installed.run(&["policy", "doc"], "").says(1, &["cannot start", "bin/qosm-policy", "ermission denied"]);
    let listed = installed.run(&["policy", "--help"], "");
    assert_eq!(listed.code, 0, "{listed:#?}");
    for line in [
        "  new       Create a policy",
        "  lint      Check a policy for",
        "  inspect   Show what a module is",
        "`qosm-policy`",
    ] {
        assert!(listed.stdout.contains(line), "{line}: {}", listed.stdout);
    }
    installed.run(&["policy", "help", "inspect"], "").says(0, &[]);
    installed.run(&["policy", "cobble"], "").says(2, &["cobble"]);
}

/// The content of the image.
#[test]
fn nothing_of_the_workshop_is_in_the_daemon() {
    let bytes = fs::read(QOSM).unwrap();
    let holds = |words: &str| memmem::find(&bytes, words.as_bytes()).is_some();
    assert!(holds("no agent answers at"), "this is how a text of qosm's is found");
    for words in ["/dev/fuse", "qosm_sdk::export!", "cargo build", "rego_parse_error", "bomFormat"] {
        assert!(!holds(words), "`{words}` is in {}", Path::new(QOSM).display());
    }
}
