//! Tests beside something that has to be taken down, whatever happens.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::Tally;
use crate::command;
use crate::interrupt::Interrupt;

/// As its namesake for tests that need nothing to be cleaned up, but ends the tests when this process is asked to end.
///
/// # Errors
///
/// When they cannot be started or their output cannot be read.
pub(super) fn counted(program: &mut Command, interrupt: &Interrupt, tally: &mut Tally) -> Result<()> {
    let mut child =
        program.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("the tests cannot be started")?;
    let stdout = child.stdout.take().context("a piped command has no stdout")?;
    let pid = Pid::from_child(&child);
    let ended = Arc::new(AtomicBool::new(false));
    let watch = {
        let (ended, interrupt) = (Arc::clone(&ended), interrupt.clone());
        thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                if interrupt.asked() {
                    // Through `sudo` it is out of reach, and hears of Ctrl-C itself.
                    let _ = kill_process(pid, Signal::TERM);
                    return;
                }
                thread::sleep(Duration::from_millis(100));
            }
        })
    };
    let before = tally.failed;
    let read = command::each_line(stdout, |line| {
        tally.read(line);
        println!("{line}");
    });
    // Not waited for until nobody can signal it any more: until then its number is its own.
    ended.store(true, Ordering::Relaxed);
    // It does not fail.
    let _ = watch.join();
    let status = child.wait().context("the tests cannot be waited for")?;
    read.context("the tests' output cannot be read")?;
    tally.end(before, status.success());
    Ok(())
}
