//! The tests on a node like one in production: systemd, cgroup v2, kubelet and containerd with the systemd driver, and the kubelet's own
//! memory QoS, in user-mode Linux, together with the control plane.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::guest::{self, Console};
use super::left_out::{POWER_GOES, POWER_IS_BACK};
use super::program::staged;
use super::{CLUSTER, Run, Selection, Stage, Tally};
use crate::cluster::Programs;
use crate::{command, rego, vm};

const LIMIT: Duration = Duration::from_secs(60 * 60);

/// The cluster's folder in the guest.
const DIR: &str = "/var/lib/qosm-cluster";

/// A network without a route to anywhere, in a range for tests (RFC 2544).
const NETWORK: &str = "ip link add out type dummy && ip address add 198.18.214.2/24 dev out && ip link set out up && ip route add default via 198.18.214.1\n";

/// Runs all tests in one boot, except those of a power cut, which take two more.
///
/// # Errors
///
/// If something cannot be built, or the guest does not boot or goes down before the tests have ended.
pub(super) fn run(run: &Run<'_>, selection: &Selection<'_>, tally: &mut Tally) -> Result<()> {
    command::heading("building the cluster tests");
    let prepared = prepared(run)?;
    let tests = staged(run.workspace, CLUSTER)?;
    command::heading("a node with systemd, in user-mode Linux");
    let Some(system) = vm::System::fresh(run.workspace)? else {
        println!("    not run: only Debian has a package of user-mode Linux");
        tally.not_run += 1;
        return Ok(());
    };
    // Each pod has a link to the host; the API server needs a default route.
    let network = format!("{}{}{NETWORK}", system.load("veth"), system.load("dummy"));
    let of_all = |args: &dyn Fn(&str) -> String| -> String {
        tests.iter().map(|test| format!("cd '{}'\n{}", test.folder.display(), args(&test.name()))).collect()
    };
    let program = |name: &str| {
        let test = tests.iter().find(|test| test.name() == name);
        test.map_or_else(String::new, |test| format!("'{}'", test.program.display()))
    };
    let mut boots = vec![of_all(&|name| guest::lines(Stage::Node, selection, name, &program(name)))];
    if is_power_cut(selection) {
        let exact = |test: &str| ["--exact".to_owned(), test.to_owned()];
        // Data that is not on the disk by then is lost.
        let off = "echo 'qosm-vm: the script ended with 0'\npoweroff --force --force --no-sync\n";
        let goes = of_all(&|name| guest::run(name, &program(name), &exact(POWER_GOES)));
        boots.push(format!("{goes}{off}"));
        boots.push(of_all(&|name| guest::run(name, &program(name), &exact(POWER_IS_BACK))));
    }
    for tests in boots {
        let mut console = Console::new(Stage::Node, tally);
        let script = format!("{network}{prepared}{tests}");
        let code = system.boot(&script, LIMIT, &run.interrupt, |line| console.line(line));
        let unended = console.end();
        match code {
            Ok(code) => ensure!(code == 0 || unended || console.has_failures(), "the guest's script ended with {code}"),
            Err(error) if unended => command::tell(&error),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the two tests of a power cut are selected.
fn is_power_cut(selection: &Selection<'_>) -> bool {
    let both = [POWER_GOES, POWER_IS_BACK];
    match selection {
        Selection::Short | Selection::All(None) => true,
        Selection::All(Some(text)) => both.iter().any(|name| name.contains(text)),
        Selection::Again(failures) => failures.iter().any(|failure| both.contains(&failure.test.as_str())),
    }
}

/// Programs, modules and the chart are at the same paths as on this machine; the guest writes to its own disk.
fn prepared(run: &Run<'_>) -> Result<String> {
    let workspace = run.workspace;
    let tools = Programs::find(workspace)?;
    let home = std::env::var("HOME").context("the environment has no HOME")?;
    let mut script = format!("export HOME='{home}' RUST_BACKTRACE=1\n");
    for place in [workspace.root(), workspace.target(), &workspace.cache()?] {
        script += &format!("mkdir -p '{0}' && mount --bind '/host{0}' '{0}'\n", place.display());
    }
    // The kubelet's cadvisor reads the CPU frequency, which this kernel does not report.
    script += "sed 's/^bogomips.*/&\\ncpu MHz\\t\\t: 2400.000/' /proc/cpuinfo >/run/cpuinfo && mount --bind /run/cpuinfo /proc/cpuinfo\n";
    let xtask = run.xtask.display();
    script += &format!(
        "'{xtask}' cluster up --node --cgroup-driver systemd --dir {DIR} || {{ '{xtask}' cluster logs --dir {DIR}; exit 1; }}\n"
    );
    let (config, cache) = (format!("{DIR}/admin.kubeconfig"), format!("{DIR}/kubectl-cache"));
    let (binary, policy_binary) = (workspace.binary(), workspace.policy_binary());
    let (modules, bundles) = (workspace.modules(), rego::bundles(workspace));
    let variables: [(&str, &Path); 14] = [
        ("KUBECONFIG", config.as_ref()),
        ("KUBECACHEDIR", cache.as_ref()),
        ("HELM_CACHE_HOME", cache.as_ref()),
        ("QOSM_TEST_CLUSTER", DIR.as_ref()),
        ("QOSM_TEST_CGROUP_ROOT", "/".as_ref()),
        ("QOSM_TEST_CGROUP_DRIVER", "systemd".as_ref()),
        ("QOSM_XTASK", &run.xtask),
        ("QOSM_KUBECTL", &tools.kubectl),
        ("QOSM_HELM", &tools.helm),
        ("QOSM_PROMTOOL", &tools.promtool),
        ("QOSM_BIN", &binary),
        ("QOSM_POLICY_BIN", &policy_binary),
        ("QOSM_MODULES", &modules),
        ("QOSM_BUNDLES", &bundles),
    ];
    for (name, value) in variables {
        script += &format!("export {name}='{}'\n", value.display());
    }
    Ok(script)
}
