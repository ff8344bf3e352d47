//! `qosm relay`: connects standard input and output to the agent, for clients that cannot reach its socket.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::Context;
use qosm_terminal::Answer;

use crate::client::no_agent_at;

/// Maximum number of bytes that are passed on at once.
const PIECE_SIZE: usize = 64 * 1024;

pub(crate) fn run(socket: &Path) -> anyhow::Result<Answer> {
    let agent = UnixStream::connect(socket).with_context(|| no_agent_at(socket))?;
    let asks = agent.try_clone()?;
    std::thread::spawn(move || {
        // The client has closed its side; the rest of the agent's answer is still read.
        copy(std::io::stdin().lock(), &asks).ok();
        asks.shutdown(Shutdown::Write).ok();
    });
    copy(&agent, std::io::stdout().lock())?;
    Ok(Answer::Good)
}

/// Passes on each piece as soon as it arrives.
pub(crate) fn copy(mut from: impl Read, mut to: impl Write) -> std::io::Result<()> {
    let mut piece = vec![0; PIECE_SIZE];
    loop {
        let length = match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(piece.get(..length).unwrap_or_default())?;
        to.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records what it holds at each flush.
    #[derive(Default)]
    struct Flushed {
        held: Vec<u8>,
        pieces: Vec<Vec<u8>>,
    }

    impl Write for Flushed {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.held.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            self.pieces.push(std::mem::take(&mut self.held));
            Ok(())
        }
    }

    #[test]
    fn a_piece_without_the_end_of_a_line_is_handed_on_too() {
        let mut to = Flushed::default();
        copy((&b"{\"a\":1}"[..]).chain(&b"second"[..]), &mut to).unwrap();
        assert_eq!(to.pieces, [b"{\"a\":1}".to_vec(), b"second".to_vec()]);
    }
}
