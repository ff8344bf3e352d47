//! What the agent keeps when it confines itself: the paths in its arguments and its file, and the capabilities that its policies need.

use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use qosm_agent::config::{AgentConfig, ConfinementMode, NriMode, PolicyConfig};
use qosm_cluster::kubernetes::ConnectionFiles;
use qosm_confinement::{Access, Capability, Confinement, Entered, Seccomp, SeccompMode, Status, loaded_files};
use qosm_engine::Interface;

use crate::args::AgentArgs;

/// Files that the C library reads to resolve host names.
const RESOLVER: [&str; 8] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/ld.so.cache",
];
/// Folder of systemd-resolved's files, to which /etc/resolv.conf may link.
const RESOLVED: &str = "/run/systemd/resolve";
/// Certificate authorities, and the targets of links among them.
const AUTHORITIES: [&str; 8] = [
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/usr/lib/ssl",
];
/// Folders read below /sys. Links of `block` and `dev` lead to `devices`.
const SYS: [&str; 6] = ["block", "dev/block", "devices", "fs", "kernel/mm", "kernel/sched_ext"];
/// Kernel settings that controls write, below /proc/sys …
const WRITTEN_SYSCTL: [&str; 5] = [
    "vm/min_free_kbytes",
    "vm/watermark_scale_factor",
    "kernel/sched_core",
    "kernel/sched_group_identity_enabled",
    "kernel/sched_idle_saver_wmark",
];
/// … and below /sys.
const WRITTEN_SYS: [&str; 2] = ["kernel/mm/memcg_reaper", "kernel/mm/pagecache_limit"];
/// Folders that a host's programs share: the agent may only create its socket there.
const SHARED: [&str; 5] = ["/", "/run", "/tmp", "/var/run", "/var/tmp"];

/// Confines this process, which must not have started a thread yet. Returns `None` if confinement is off.
pub(crate) fn agent(
    args: &AgentArgs,
    config: &AgentConfig,
    entries: &[PolicyConfig],
    default_modules: &Path,
) -> anyhow::Result<Option<Entered>> {
    let mode = config.confinement.mode;
    if mode == ConfinementMode::Off {
        tracing::warn!("confinement is off: the agent keeps all its privileges");
        return Ok(None);
    }
    let entered = match plan(args, config, entries, default_modules)?.enter() {
        Ok(entered) => entered,
        Err(error) if mode == ConfinementMode::Require => {
            return Err(error).context("the agent cannot confine itself, and `confinement.mode` requires it");
        }
        Err(error) => {
            let error = qosm_model::problem::chain(&error);
            tracing::warn!(
                error,
                "the agent is not confined as far as it should be; `qosm doctor` says what is in force"
            );
            return Ok(None);
        }
    };
    let seccomp = Status::read().map_or(SeccompMode::Off, |status| status.seccomp);
    let lacking = [
        (!entered.landlock.is_enforced()).then(|| entered.landlock.to_string()),
        (seccomp == SeccompMode::Off).then(|| "no filter of system calls: the kernel has no seccomp".to_owned()),
    ];
    for lacking in lacking.into_iter().flatten() {
        if mode == ConfinementMode::Require {
            anyhow::bail!("the agent cannot confine itself, and `confinement.mode` requires it: {lacking}");
        }
        tracing::warn!(lacking, "the agent is confined in part");
    }
    for (path, error) in &entered.missing {
        tracing::debug!(path = %path.display(), %error, "path cannot be made accessible to the agent");
    }
    tracing::info!(landlock = %entered.landlock, seccomp = entered.filtered, "the agent has confined itself");
    Ok(Some(entered))
}

fn plan(
    args: &AgentArgs,
    config: &AgentConfig,
    entries: &[PolicyConfig],
    default_modules: &Path,
) -> anyhow::Result<Confinement> {
    let mounts_resctrl = mounts_resctrl(args, config, entries);
    let seccomp = if mounts_resctrl { Seccomp::Mount } else { Seccomp::Dangerous };
    let mut confinement = Confinement::new(seccomp)
        .allow_signals(ends_processes(args, config, entries))
        .keep(capabilities(args, config, entries, mounts_resctrl));
    if mounts_resctrl {
        // Landlock forbids mounts.
        tracing::warn!("all paths stay within reach: the agent has to mount resctrl; mount it before the agent starts");
        confinement = confinement.all_paths();
    }
    let connection =
        args.kubernetes.kubernetes.then(|| ConnectionFiles::find(args.kubernetes.cluster.kubeconfig.as_deref()));
    if let Some(program) = connection.as_ref().and_then(|files| files.program.as_deref()) {
        tracing::warn!(program, "all paths stay within reach: the kubeconfig names a program that brings credentials");
        confinement = confinement.all_paths();
    }
    for (path, access) in paths(args, config, entries, default_modules, connection.as_ref())? {
        confinement = confinement.allow(path, access);
    }
    Ok(confinement)
}

/// Whether the agent must mount resctrl: an initial policy needs it, and the kernel supports it, but it is not mounted.
fn mounts_resctrl(args: &AgentArgs, config: &AgentConfig, entries: &[PolicyConfig]) -> bool {
    let has_line = |path: &str, wanted: &dyn Fn(&str) -> bool| {
        std::fs::read_to_string(path).unwrap_or_default().lines().any(wanted)
    };
    !args.kubernetes.kubernetes
        && config.resctrl.path.is_none()
        && grants(entries, &[Interface::ResctrlAllocation, Interface::ResctrlMonitor])
        && has_line("/proc/filesystems", &|line| line.trim() == "nodev\tresctrl")
        && !has_line("/proc/self/mounts", &|line| line.split(' ').nth(2) == Some("resctrl"))
}

/// Whether any policy is granted any of these interfaces.
pub(crate) fn grants(entries: &[PolicyConfig], wanted: &[Interface]) -> bool {
    let has =
        |entry: &PolicyConfig| entry.granted().is_ok_and(|granted| wanted.iter().any(|one| granted.contains(*one)));
    entries.iter().any(has)
}

/// Whether the agent may have to kill processes of pods by signals.
fn ends_processes(args: &AgentArgs, config: &AgentConfig, entries: &[PolicyConfig]) -> bool {
    if !args.kubernetes.kubernetes {
        return grants(entries, &[Interface::Eviction]);
    }
    // Policies come later, from PolicyModules.
    let rails = &config.guard_rails.evictions;
    let may_end = rails.local_after_seconds.is_some() && rails.per_minute > 0 && rails.per_hour > 0;
    may_end && !ends_by_cgroup(&args.host.cgroup_mount)
}

/// Whether the kernel can kill all processes of a cgroup (`cgroup.kill`: cgroup v2, Linux 5.14). The hierarchy's root has no such file.
fn ends_by_cgroup(mount: &Path) -> bool {
    let groups = std::fs::read_dir(mount).into_iter().flatten().flatten();
    groups.map(|group| group.path()).any(|group| group.join("cgroup.kill").exists())
}

/// The capabilities that the initial policies need, and those that the operator names.
fn capabilities(
    args: &AgentArgs,
    config: &AgentConfig,
    entries: &[PolicyConfig],
    mounts_resctrl: bool,
) -> Vec<Capability> {
    // The compiler's child becomes the user `nobody`.
    let mut kept = vec![Capability::SETUID, Capability::SETGID];
    if !args.kubernetes.kubernetes {
        // The agent creates cgroups in a hierarchy's root, which is closed even to its owner (mode 0555) and may belong to any
        // user. A kubelet's pods belong to root.
        kept.push(Capability::DAC_OVERRIDE);
    }
    if ends_processes(args, config, entries) {
        // The agent kills processes of any user where no controller evicts pods.
        kept.push(Capability::KILL);
    }
    if mounts_resctrl {
        kept.push(Capability::SYS_ADMIN);
    }
    if grants(entries, &[Interface::Pressure]) {
        // For pressure triggers with windows below 2 s.
        kept.push(Capability::SYS_RESOURCE);
    }
    kept.extend(config.confinement.capabilities.iter().map(|name| name.capability()));
    kept
}

fn paths(
    args: &AgentArgs,
    config: &AgentConfig,
    entries: &[PolicyConfig],
    default_modules: &Path,
    connection: Option<&ConnectionFiles>,
) -> anyhow::Result<Vec<(PathBuf, Access)>> {
    let mut paths: Vec<(PathBuf, Access)> = Vec::new();
    let mut allow = |path: &Path, access| paths.push((path.to_path_buf(), access));

    // The kernel.
    allow(&args.host.cgroup_mount, Access::Change);
    for proc in [Path::new("/proc"), &args.host.proc] {
        allow(proc, Access::Read);
        allow(&proc.join("pressure"), Access::Change);
    }
    // The kernel settings that a control writes, whatever is granted: values of an earlier run are restored without a grant.
    for sysctl in [args.host.proc.join("sys"), args.host.sysctl.clone()] {
        for below in WRITTEN_SYSCTL {
            allow(&sysctl.join(below), Access::Change);
        }
    }
    for below in WRITTEN_SYS {
        allow(&args.host.sys.join(below), Access::Change);
    }
    if let Some(kubelet) = &args.host.kubelet_root {
        allow(kubelet, Access::Read);
    }
    for below in SYS {
        allow(&Path::new("/sys").join(below), Access::Read);
        allow(&args.host.sys.join(below), Access::Read);
    }
    allow(&args.host.sys.join("fs/resctrl"), Access::Change);
    // Where the chart mounts the node's /sys/fs, so that a later mount of resctrl is visible.
    allow(Path::new("/host/sys/fs"), Access::Read);
    allow(Path::new("/host/sys/fs/resctrl"), Access::Change);
    if let Some(path) = &config.resctrl.path {
        allow(Path::new(path.as_str()), Access::Change);
    }
    for device in ["null", "zero", "random", "urandom"] {
        allow(&Path::new("/dev").join(device), Access::Change);
    }

    // The agent's own folders.
    allow(&args.state_dir, Access::Own);
    for own in ["modules", "artifacts"] {
        allow(&args.state_dir.join(own), Access::Own);
    }
    let run = args.admin_socket.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    allow(run, if SHARED.iter().any(|shared| run == Path::new(shared)) { Access::Bind } else { Access::Own });
    // For unpacking archives of artefacts.
    allow(&std::env::temp_dir(), Access::Own);

    // The folder of the NRI socket, because the runtime may create the socket again.
    if config.nri.mode == NriMode::Auto {
        for folder in config.nri.socket.parent().into_iter().filter(|folder| folder.components().count() > 2) {
            allow(folder, Access::Read);
        }
    }
    if let Some(socket) = &args.page_mover {
        allow(socket.parent().unwrap_or(Path::new(".")), Access::Read);
    }

    // The agent's own program, to compile modules in a child, and the libraries that the C library loads on demand.
    for file in loaded_files().context("cannot list the files of the agent itself")? {
        allow(&file, Access::Execute);
        if let Some(folder) = file.parent().filter(|_| file.extension().is_none_or(|end| end != "wasm")) {
            allow(folder, Access::Read);
        }
    }

    // The files in the arguments, and their folders, because files are replaced.
    let modules = entries.iter().filter_map(PolicyConfig::module_path);
    let keys =
        entries.iter().filter_map(|entry| entry.verification.as_ref()).flat_map(|verification| &verification.keys);
    let named = [&args.pods, &args.agent_config].into_iter().flatten().chain(&args.config).cloned();
    let of_connection = connection.into_iter().flat_map(|files| files.paths.clone());
    let variables = ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let replaced = named
        .chain(modules)
        .chain(keys.filter_map(|key| key.path.clone()))
        .chain(config.registries.paths())
        .chain(of_connection)
        .chain(variables);
    for path in replaced {
        for path in with_folder(&path) {
            allow(&path, Access::Read);
        }
    }
    allow(default_modules, Access::Read);
    for path in &config.confinement.read_paths {
        allow(path, Access::Read);
    }

    // For resolving host names, and certificate authorities.
    for path in RESOLVER.iter().chain(&AUTHORITIES).chain([&RESOLVED]) {
        allow(Path::new(path), Access::Read);
    }
    if let Some(folder) = std::fs::canonicalize(RESOLVER[0]).ok().and_then(|file| folder_of(&file)) {
        allow(&folder, Access::Read);
    }
    Ok(paths)
}

/// A path, its folder, and the folder of its link target: the file may be replaced in either.
fn with_folder(path: &Path) -> Vec<PathBuf> {
    let mut all = vec![path.to_path_buf()];
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    all.extend(folder_of(&absolute));
    all.extend(std::fs::canonicalize(path).ok().and_then(|real| folder_of(&real)));
    all.dedup();
    all
}

/// The folder of a file; `None` for the root or a folder directly below it, such as /etc: that would allow too much of the host.
fn folder_of(path: &Path) -> Option<PathBuf> {
    let folder = path.parent()?;
    let depth = folder.components().filter(|part| matches!(part, Component::Normal(_))).count();
    (depth > 1).then(|| folder.to_path_buf())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn args(more: &[&str]) -> AgentArgs {
        let command = [&["qosm", "agent"][..], more].concat();
        match Cli::try_parse_from(command).unwrap().command {
            Command::Agent(args) => *args,
            other => unreachable!("{other:?}"),
        }
    }

    fn allowed(more: &[&str], config: &str, entries: &[PolicyConfig]) -> Vec<(PathBuf, Access)> {
        let config: AgentConfig = serde_json::from_str(config).unwrap();
        paths(&args(more), &config, entries, Path::new("/usr/lib/qosm/policies"), None).unwrap()
    }

    #[test]
    fn an_agent_of_a_cluster_sends_signals_where_it_ends_pods_and_the_kernel_does_not_by_their_cgroup() {
        let mount = tempfile::tempdir().unwrap();
        let sends = |kubernetes: &[&str], rails: &str, entries: &[PolicyConfig]| {
            let at = ["--cgroup-mount", mount.path().to_str().unwrap()];
            let config = format!(r#"{{"guardRails": {{"evictions": {rails}}}}}"#);
            let config: AgentConfig = serde_json::from_str(&config).unwrap();
            let args = args(&[kubernetes, &at].concat());
            let kept = capabilities(&args, &config, entries, false);
            let sends = ends_processes(&args, &config, entries);
            assert_eq!(kept.contains(&Capability::KILL), sends);
            sends
        };
        let kubernetes = ["--kubernetes", "--node-name", "n"];
        assert!(sends(&kubernetes, "{}", &[]));
        for rails in [r#"{"localAfterSeconds": null}"#, r#"{"perMinute": 0}"#, r#"{"perHour": 0}"#] {
            assert!(!sends(&kubernetes, rails, &[]), "{rails}");
        }
        assert!(!sends(&["--pods", "/srv/pods/x"], "{}", &[]), "no policy of the start evicts");
        std::fs::create_dir(mount.path().join("kubepods")).unwrap();
        std::fs::write(mount.path().join("kubepods/cgroup.kill"), "").unwrap();
        assert!(!sends(&kubernetes, "{}", &[]));
    }

    #[test]
    fn of_a_file_its_folder_is_allowed_and_never_half_of_the_host() {
        for (path, folder) in [
            ("/etc/qosm/agent.yaml", Some("/etc/qosm")),
            ("/etc/qosm/pods", Some("/etc/qosm")),
            ("/etc/agent.yaml", None),
            ("/agent.yaml", None),
            ("/home/x/pods", Some("/home/x")),
        ] {
            assert_eq!(folder_of(Path::new(path)), folder.map(PathBuf::from), "{path}");
        }
    }

    #[test]
    fn what_arguments_and_file_name_is_within_reach() {
        let config = r#"{"registries": {"credentials": ["/secrets/pull"],
            "hosts": [{"registry": "r:5000", "ca": "/srv/ca/r.pem"}]}, "confinement": {"readPaths": ["/opt/modules"]}}"#;
        let entries =
            [PolicyConfig { module: Some("file:///srv/modules/x.wasm".to_owned()), ..PolicyConfig::builtin("x") }];
        let more = ["--pods", "/srv/pods/web", "--config", "/srv/slo/slo.yaml", "--state-dir", "/srv/state"];
        let allowed = allowed(&more, config, &entries);
        for (path, access) in [
            ("/sys/fs/cgroup", Access::Change),
            ("/proc", Access::Read),
            ("/srv/state", Access::Own),
            ("/srv/pods/web", Access::Read),
            ("/srv/slo", Access::Read),
            ("/srv/modules", Access::Read),
            ("/secrets/pull", Access::Read),
            ("/srv/ca", Access::Read),
            ("/opt/modules", Access::Read),
            ("/usr/lib/qosm/policies", Access::Read),
        ] {
            assert!(allowed.contains(&(path.into(), access)), "{path}: {allowed:?}");
        }
    }

    #[test]
    fn of_the_settings_of_the_kernel_those_that_a_control_writes_are_within_reach_and_no_others() {
        let allowed = allowed(&["--kubernetes", "--node-name", "n"], "{}", &[]);
        let mut written: Vec<_> = (allowed.iter().filter(|(_, access)| *access == Access::Change))
            .filter_map(|(path, _)| {
                path.strip_prefix("/proc/sys").or_else(|_| path.strip_prefix("/host/proc/sys")).ok()
            })
            .collect();
        written.sort_unstable();
        written.dedup();
        assert_eq!(
            written,
            [
                "kernel/sched_core",
                "kernel/sched_group_identity_enabled",
                "kernel/sched_idle_saver_wmark",
                "vm/min_free_kbytes",
                "vm/watermark_scale_factor"
            ]
            .map(Path::new)
        );
    }

    #[test]
    fn neither_the_root_nor_a_folder_of_everybodys_is_within_reach() {
        let allowed = allowed(&["--pods", "/pods", "--config", "/etc/slo.yaml"], "{}", &[]);
        let is_wide = |path: &Path| {
            ["/", "/etc", "/usr", "/var", "/home", "/root", "/run", "/sys"].iter().any(|wide| path == Path::new(wide))
        };
        let wide: Vec<_> = allowed.iter().filter(|(path, access)| is_wide(path) && *access != Access::Bind).collect();
        assert!(wide.is_empty(), "{wide:?}");
        // Only the program itself and its loader can be executed.
        let programs: Vec<_> = allowed.iter().filter(|(_, access)| *access == Access::Execute).collect();
        assert!(programs.iter().all(|(path, _)| path.is_file()), "{programs:?}");
    }

    #[test]
    fn a_socket_in_a_folder_of_everybodys_brings_no_more_than_that() {
        let of = |socket: &str| allowed(&["--pods", "/srv/pods/x", "--admin-socket", socket], "{}", &[]);
        assert!(of("/run/qosm.sock").contains(&("/run".into(), Access::Bind)));
        assert!(of("/run/qosm/qosm.sock").contains(&("/run/qosm".into(), Access::Own)));
    }

    #[test]
    fn capabilities_follow_from_grants_and_from_where_pods_come_from() {
        let pressed = PolicyConfig { grants: Some(vec!["pressure".to_owned()]), ..PolicyConfig::builtin("x") };
        let burst = PolicyConfig::builtin("cpu-burst");
        let kept = |more: &[&str], config: &str, entry: &PolicyConfig| {
            let config: AgentConfig = serde_json::from_str(config).unwrap();
            let mut kept = capabilities(&args(more), &config, std::slice::from_ref(entry), false);
            kept.sort();
            kept.into_iter().filter_map(Capability::name).collect::<Vec<_>>().join(" ")
        };
        // A hierarchy in which the kernel kills pods by their cgroup.
        let mount = tempfile::tempdir().unwrap();
        std::fs::create_dir(mount.path().join("kubepods")).unwrap();
        std::fs::write(mount.path().join("kubepods/cgroup.kill"), "").unwrap();
        let mount = mount.path().to_str().unwrap();
        let folder = ["--pods", "/srv/pods/x"];
        let kubernetes = ["--kubernetes", "--node-name", "n", "--cgroup-mount", mount];
        assert_eq!(kept(&kubernetes, "{}", &burst), "SETGID SETUID");
        assert_eq!(kept(&folder, "{}", &burst), "DAC_OVERRIDE SETGID SETUID");
        assert_eq!(kept(&folder, "{}", &pressed), "DAC_OVERRIDE SETGID SETUID SYS_RESOURCE");
        let named = r#"{"confinement": {"capabilities": ["CAP_DAC_OVERRIDE"]}}"#;
        assert_eq!(kept(&kubernetes, named, &burst), "DAC_OVERRIDE SETGID SETUID");
    }
}
