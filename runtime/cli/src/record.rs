//! `qosm record`: records what a running agent sees.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::Context;
use qosm_terminal::Answer;

use crate::args::RecordArgs;
use crate::client;
use crate::client::EndedBy;

pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<Answer> {
    let out: Box<dyn Write> = match &args.file {
        Some(path) => Box::new(Replacing::open(path)?),
        None => Box::new(std::io::stdout().lock()),
    };
    let at_most = args.duration.map(|duration| duration.unsigned_abs());
    let mut lines = Lines::new(out, args.max_size, args.max_ticks);
    let ended = client::stream(&args.socket.admin_socket, "/v1/record", at_most, |bytes| lines.take(bytes))?;
    let is_bounded = at_most.is_some() || args.max_size.is_some() || args.max_ticks.is_some();
    if ended == EndedBy::Agent && is_bounded {
        eprintln!(
            "the agent ended the recording after {} ticks: it ended itself, or this command did not keep up",
            lines.ticks()
        );
        return Ok(Answer::Bad);
    }
    Ok(Answer::Good)
}

/// A file whose earlier content goes with the first write: without an agent that answers, an earlier recording stays, and a file that was
/// not there is gone again.
struct Replacing {
    file: File,
    is_begun: bool,
    /// Its path, if it was not there before.
    made: Option<PathBuf>,
}

impl Replacing {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let (file, made) = match File::options().write(true).create_new(true).open(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                (File::options().write(true).create(true).truncate(false).open(path), None)
            }
            file => (file, Some(path.to_owned())),
        };
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { file, is_begun: false, made })
    }
}

impl Drop for Replacing {
    fn drop(&mut self) {
        if let Some(path) = self.made.as_ref().filter(|_| !self.is_begun) {
            // An empty file that stays is no error of the recording.
            std::fs::remove_file(path).ok();
        }
    }
}

impl Write for Replacing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // A pipe or a terminal has no length.
        if !self.is_begun && self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.is_begun = true;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// Writes only whole lines, up to the bounds: the input may be cut anywhere.
struct Lines<W> {
    out: W,
    max_size: Option<u64>,
    max_ticks: Option<u64>,
    size: u64,
    lines: u64,
    /// The beginning of an incomplete line.
    begun: Vec<u8>,
}

impl<W: Write> Lines<W> {
    fn new(out: W, max_size: Option<u64>, max_ticks: Option<u64>) -> Self {
        Self { out, max_size, max_ticks, size: 0, lines: 0, begun: Vec::new() }
    }

    /// Number of lines after the facts.
    fn ticks(&self) -> u64 {
        self.lines.saturating_sub(1)
    }

    fn take(&mut self, bytes: &[u8]) -> anyhow::Result<ControlFlow<()>> {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.begun.extend_from_slice(piece);
            if piece.ends_with(b"\n") && self.write_line()?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn write_line(&mut self) -> anyhow::Result<ControlFlow<()>> {
        let line = std::mem::take(&mut self.begun);
        let size = self.size.saturating_add(u64::try_from(line.len())?);
        if let Some(max) = self.max_size.filter(|&max| size > max) {
            if self.lines == 0 {
                anyhow::bail!("the facts alone are {size} bytes, more than --max-size {max}; nothing was recorded");
            }
            return Ok(ControlFlow::Break(()));
        }
        self.out.write_all(&line)?;
        self.out.flush()?;
        self.size = size;
        self.lines += 1;
        Ok(if self.max_ticks.is_some_and(|max| self.ticks() >= max) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds a recording in pieces of `pieces` bytes. Returns what was written, and whether a bound ended it.
    fn record(pieces: usize, max_size: Option<u64>, max_ticks: Option<u64>) -> Result<(String, bool), String> {
        let mut written = Vec::new();
        let mut lines = Lines::new(&mut written, max_size, max_ticks);
        let mut is_ended = false;
        for piece in b"{facts}\n{1}\n{2}\n{3}\n{cut of".chunks(pieces) {
            if lines.take(piece).map_err(|error| error.to_string())?.is_break() {
                is_ended = true;
                break;
            }
        }
        Ok((String::from_utf8_lossy(&written).into_owned(), is_ended))
    }

    #[test]
    fn a_recording_ends_at_a_whole_line_however_it_comes_in() {
        for pieces in 1..30 {
            for (max_size, max_ticks, expected, is_ended) in [
                (None, None, "{facts}\n{1}\n{2}\n{3}\n", false),
                (None, Some(2), "{facts}\n{1}\n{2}\n", true),
                (Some(12), None, "{facts}\n{1}\n", true),
                (Some(15), None, "{facts}\n{1}\n", true),
                (Some(16), None, "{facts}\n{1}\n{2}\n", true),
                (Some(16), Some(1), "{facts}\n{1}\n", true),
                (Some(9), Some(2), "{facts}\n", true),
            ] {
                let recorded = record(pieces, max_size, max_ticks);
                assert_eq!(recorded, Ok((expected.to_owned(), is_ended)), "{pieces} {max_size:?} {max_ticks:?}");
            }
        }
    }

    #[test]
    fn facts_that_are_too_large_are_said_to_be() {
        let message = "the facts alone are 8 bytes, more than --max-size 7; nothing was recorded";
        assert_eq!(record(5, Some(7), None), Err(message.to_owned()));
    }

    #[test]
    fn an_earlier_recording_stays_until_the_first_line_comes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.jsonl");
        std::fs::write(&path, "{earlier}\n{1}\n").unwrap();
        let mut file = Replacing::open(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{earlier}\n{1}\n");
        file.write_all(b"{now}\n").unwrap();
        file.write_all(b"{2}\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{now}\n{2}\n");
    }

    #[test]
    fn a_new_file_stays_only_with_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.jsonl");
        for (line, stays) in [("", false), ("{now}\n", true), ("", true)] {
            let mut file = Replacing::open(&path).unwrap();
            if !line.is_empty() {
                file.write_all(line.as_bytes()).unwrap();
            }
            drop(file);
            assert_eq!(path.exists(), stays, "{line}");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{now}\n");
    }
}
