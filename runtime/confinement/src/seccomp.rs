//! Restricts system calls with seccomp.
//!
//! There are two kinds of filter. For a long-lived process, the filter refuses calls by which a compromised process would reach the kernel
//! or other processes, and allows all others, so that a newer C library does not break it. For a compiler, which has all that it needs
//! before it reads an untrusted module, the filter allows only the few calls that computing takes. Refused calls fail with `EPERM`
//! (`clone3` with `ENOSYS`); nothing is killed.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Is, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use crate::ConfinementError;
use crate::status::{SeccompMode, Status};

/// The system calls that a process keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seccomp {
    /// All.
    All,
    /// All but those that a node agent has no use for: modules, mounts, namespaces, BPF, debugging, keys, `io_uring`, exotic sockets, …
    /// No filter is added where one is in force already: a container runtime's, or systemd's.
    Dangerous,
    /// The same as [`Seccomp::Dangerous`], and moving other processes' pages.
    MovePages,
    /// The same as [`Seccomp::Dangerous`], and `mount` and `umount`.
    Mount,
    /// Reading and writing open files, memory, and ending. Added to whatever is in force.
    Compute,
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Puts the filter in force. Returns `false` if none was needed, or the kernel was built without seccomp.
pub(crate) fn filter(which: Seccomp) -> Result<bool, ConfinementError> {
    if which == Seccomp::All || !has_filters() {
        return Ok(false);
    }
    let is_filtered = || matches!(Status::read().map(|status| status.seccomp), Ok(SeccompMode::Filter(_)));
    let programs = match which {
        Seccomp::Compute => vec![compute()],
        _ if is_filtered() => return Ok(false),
        which => vec![clone3(), dangerous(which)],
    };
    for program in programs {
        let program = program.map_err(|error| ConfinementError::Seccomp(error.into()))?;
        apply_filter(&program).map_err(|error| ConfinementError::Seccomp(error.into()))?;
    }
    Ok(true)
}

/// Whether the kernel was built with `CONFIG_SECCOMP_FILTER`, by the test that seccomp(2) describes: for a filter at address 0, a kernel
/// with it returns `EFAULT`, and a kernel without it `EINVAL`.
#[expect(unsafe_code, reason = "prctl(2) has no safe wrapper for this")]
fn has_filters() -> bool {
    // SAFETY: the arguments are numbers and a null pointer, from which the kernel reads nothing: it fails.
    let answer =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, std::ptr::null::<libc::c_void>()) };
    answer == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL)
}

fn build(
    rules: Rules,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    BpfProgram::try_from(SeccompFilter::new(rules, otherwise, matched, arch)?)
}

fn refuse(errno: i32) -> SeccompAction {
    SeccompAction::Errno(errno.unsigned_abs())
}

/// System calls that reading files, running Wasm and TCP do not need.
const DANGEROUS: &[c_long] = &[
    // Other processes: their memory, registers and descriptors.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // The kernel's own code.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    // Another root, another namespace. `clone` has a rule of its own.
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    // Files without the paths that Landlock checks.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_mknodat,
    // Operations that no filter sees, and a call that exploits of races in the kernel often use.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    // Keys in the kernel.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // The machine's settings.
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_personality,
    // Where memory lies, of this process or another.
    libc::SYS_migrate_pages,
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_set_mempolicy_home_node,
];

#[cfg(target_arch = "x86_64")]
const DANGEROUS_HERE: &[c_long] =
    &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_uselib, libc::SYS_mknod];
#[cfg(not(target_arch = "x86_64"))]
const DANGEROUS_HERE: &[c_long] = &[];

/// `open_tree_attr` (Linux 6.15): the same number on every architecture; the crate `libc` does not have it.
const OPEN_TREE_ATTR: c_long = 467;

/// Namespaces, one bit each (include/uapi/linux/sched.h). `CLONE_NEWTIME` cannot be asked of `clone`.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Allowed kinds of sockets. Others reach drivers and protocols that an agent never uses. Netlink is for `getaddrinfo`.
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

fn dangerous(which: Seccomp) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: Rules = DANGEROUS.iter().chain(DANGEROUS_HERE).map(|&call| (call, Vec::new())).collect();
    rules.insert(OPEN_TREE_ATTR, Vec::new());
    if which != Seccomp::MovePages {
        rules.insert(libc::SYS_move_pages, Vec::new());
    }
    if which != Seccomp::Mount {
        rules.insert(libc::SYS_mount, Vec::new());
        rules.insert(libc::SYS_umount2, Vec::new());
    }
    let has = |flag: libc::c_int| {
        let flag = u64::from(flag.unsigned_abs());
        SeccompRule::new(vec![SeccompCondition::new(0, Width::Qword, Is::MaskedEq(flag), flag)?])
    };
    rules.insert(libc::SYS_clone, NAMESPACES.into_iter().map(has).collect::<Result<_, _>>()?);
    let not = |family: libc::c_int| SeccompCondition::new(0, Width::Dword, Is::Ne, u64::from(family.unsigned_abs()));
    let other = FAMILIES.into_iter().map(not).collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_socket, vec![SeccompRule::new(other)?]);
    refuse_x32(&mut rules);
    build(rules, SeccompAction::Allow, refuse(libc::EPERM))
}

/// Refuses the calls by their x32 numbers as well: on x86-64 each call can also be made by its number in the x32 ABI, if the kernel has it.
#[cfg(target_arch = "x86_64")]
fn refuse_x32(rules: &mut Rules) {
    const X32: i64 = 0x4000_0000;
    /// Calls that have another number there (arch/x86/entry/syscalls/syscall_64.tbl): ptrace, kexec_load, move_pages, process_vm_readv,
    /// process_vm_writev.
    const RENUMBERED: [i64; 5] = [521, 528, 533, 539, 540];
    let same: Vec<_> = rules.iter().map(|(call, conditions)| (call | X32, conditions.clone())).collect();
    rules.extend(same);
    rules.extend(RENUMBERED.map(|call| (call | X32, Vec::new())));
}

#[cfg(not(target_arch = "x86_64"))]
fn refuse_x32(_: &mut Rules) {}

/// Refuses `clone3`: its flags lie in memory, where no filter sees them. With `ENOSYS` the C library falls back to `clone`.
fn clone3() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = Rules::from([(libc::SYS_clone3, Vec::new())]);
    build(rules, SeccompAction::Allow, refuse(libc::ENOSYS))
}

/// The system calls of a process that has opened all that it works on, and starts nothing.
const COMPUTE: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_fcntl,
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_futex,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // abort(3) resets the handler of SIGABRT and sends it to itself; without capabilities and under Landlock no other process is reached.
    libc::SYS_tgkill,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

fn compute() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = COMPUTE.iter().map(|&call| (call, Vec::new())).collect();
    build(rules, refuse(libc::EPERM), SeccompAction::Allow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_can_be_built_here() {
        for which in [Seccomp::Dangerous, Seccomp::MovePages, Seccomp::Mount] {
            assert!(!dangerous(which).unwrap().is_empty(), "{which:?}");
        }
        assert!(!clone3().unwrap().is_empty());
        assert!(!compute().unwrap().is_empty());
    }

    #[test]
    fn a_computing_process_has_none_of_the_dangerous_calls() {
        let dangerous = DANGEROUS.iter().chain(DANGEROUS_HERE);
        assert_eq!(dangerous.filter(|call| COMPUTE.contains(call)).count(), 0);
        for call in [libc::SYS_execve, libc::SYS_openat, libc::SYS_socket, libc::SYS_clone, libc::SYS_setitimer] {
            assert!(!COMPUTE.contains(&call), "{call}");
        }
    }
}
