//! Runs other programs: prints each command, limits its time, and names it in errors.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::interrupt::Interrupt;

/// Prints a heading for a part of a long run.
pub(crate) fn heading(text: &str) {
    println!("==> {text}");
}

/// Runs a command with this terminal's output.
///
/// # Errors
///
/// If the command cannot be started, or exits with another code than 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = line(command);
    println!("    $ {line}");
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("`{line}` cannot be started"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Like [`run`], for commands that take minutes: the command is ended when this process is asked to end.
///
/// # Errors
///
/// As [`run`], and when the command was ended.
pub(crate) fn run_until_asked(command: &mut Command, interrupt: &Interrupt) -> Result<()> {
    let line = line(command);
    println!("    $ {line}");
    let mut child = command.stdin(Stdio::null()).spawn().with_context(|| format!("`{line}` cannot be started"))?;
    let status = loop {
        let status = wait(&mut child, ASKED_INTERVAL).with_context(|| format!("`{line}` cannot be waited for"))?;
        match status {
            Some(status) => break status,
            // The command may have exited at this very moment.
            None if interrupt.asked() => drop(kill_process(Pid::from_child(&child), Signal::TERM)),
            None => {}
        }
    };
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Interval of checking whether this process was asked to end.
const ASKED_INTERVAL: Duration = Duration::from_millis(200);

/// Like [`run`], for commands that use the network: tries three times, since a server may be unavailable for a moment.
///
/// # Errors
///
/// As [`run`], after the last try.
pub(crate) fn patient(command: &mut Command) -> Result<()> {
    tried(&PAUSES, || run(command))
}

/// Like [`output`], for commands that use the network: tries three times.
///
/// # Errors
///
/// As [`output`], after the last try.
pub(crate) fn patient_output(command: &mut Command) -> Result<String> {
    tried(&PAUSES, || output(command))
}

/// Pauses after the first and the second failure.
pub(crate) const PAUSES: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(20)];

/// Calls `act`, and again after each pause while it fails. Prints the errors.
///
/// # Errors
///
/// The error of the last try.
pub(crate) fn tried<T>(pauses: &[Duration], mut act: impl FnMut() -> Result<T>) -> Result<T> {
    for pause in pauses {
        match act() {
            Ok(value) => return Ok(value),
            Err(error) => {
                println!("    {error:#}; once more in {} s", pause.as_secs());
                thread::sleep(*pause);
            }
        }
    }
    act()
}

/// Prints an error with its causes.
pub(crate) fn tell(error: &anyhow::Error) {
    println!("    {error:#}");
}

/// Prints an error that does not end the run.
pub(crate) fn warn(result: Result<()>) {
    if let Err(error) = result {
        println!("    warning: {error:#}");
    }
}

/// Runs a command and returns what it printed to stdout.
///
/// # Errors
///
/// When it cannot be started or exits with another code than 0; the error holds the last line of its stderr.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = line(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("`{line}` cannot be started"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{line}` failed ({}): {}", output.status, said.trim().lines().last().unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command with this terminal's stderr, calls `each` with each line of its stdout as it is printed, and returns the exit status.
///
/// # Errors
///
/// When it cannot be started or its output cannot be read.
pub(crate) fn lines(command: &mut Command, mut each: impl FnMut(&str)) -> Result<ExitStatus> {
    let line = line(command);
    println!("    $ {line}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("`{line}` cannot be started"))?;
    let stdout = child.stdout.take().context("a piped command has no stdout")?;
    each_line(stdout, &mut each).with_context(|| format!("the output of `{line}` cannot be read"))?;
    child.wait().with_context(|| format!("`{line}` cannot be waited for"))
}

/// Calls `each` with each line of a stream, without the line end. The stream need not be UTF-8.
///
/// # Errors
///
/// When the stream cannot be read.
pub(crate) fn each_line(stream: impl Read, mut each: impl FnMut(&str)) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut bytes = Vec::new();
    while stream.read_until(b'\n', &mut bytes)? > 0 {
        each(String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']));
        bytes.clear();
    }
    Ok(())
}

/// Runs a command that may hang. When the time is up, kills it and all processes that it started, and returns `None`.
///
/// # Errors
///
/// When it cannot be started or waited for.
pub(crate) fn bounded(command: &mut Command, limit: Duration) -> Result<Option<ExitStatus>> {
    let line = line(command);
    println!("    $ {line}   (at most {} s)", limit.as_secs());
    let mut child =
        command.stdin(Stdio::null()).process_group(0).spawn().with_context(|| format!("`{line}` cannot be started"))?;
    let status = wait(&mut child, limit).with_context(|| format!("`{line}` cannot be waited for"))?;
    if status.is_none() {
        signal_group(&child, Signal::KILL);
        child.wait().with_context(|| format!("`{line}` cannot be waited for"))?;
    }
    Ok(status)
}

/// Waits for a child for at most `limit`; `None` if it still runs then.
///
/// # Errors
///
/// As [`Child::try_wait`].
pub(crate) fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= limit {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal to the process group of a child, which leads it.
pub(crate) fn signal_group(child: &Child, signal: Signal) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The child may have exited at this very moment; then nothing is left to do.
        let _ = kill_process_group(group, signal);
    }
}

/// The command as a user types it: programs by their names, without paths.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let words = program.file_name().into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_hangs_is_ended() {
        let start = Instant::now();
        let status = bounded(Command::new("sh").args(["-c", "sleep 60; true"]), Duration::from_millis(100)).unwrap();
        assert!(status.is_none());
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn lines_come_whole_whatever_their_end() {
        let mut seen = Vec::new();
        each_line(&b"one\r\ntwo\n\xffthree"[..], |line| seen.push(line.to_owned())).unwrap();
        assert_eq!(seen, ["one", "two", "\u{fffd}three"]);
    }

    #[test]
    fn what_fails_is_tried_three_times_and_what_works_is_not_tried_again() {
        let mut tries = 0;
        let mut act = |works_at: u32| {
            tries = 0;
            tried(&[Duration::ZERO; 2], || {
                tries += 1;
                anyhow::ensure!(tries == works_at, "try {tries}");
                Ok(tries)
            })
            .map_err(|error| error.to_string())
        };
        assert_eq!((act(1), act(3), act(4)), (Ok(1), Ok(3), Err("try 3".to_owned())));
    }

    #[test]
    fn a_failed_command_is_named_with_its_last_words() {
        let error = output(Command::new("sh").args(["-c", "echo no such luck >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("exit status: 3") && text.ends_with("no such luck"), "{text}");
    }
}
