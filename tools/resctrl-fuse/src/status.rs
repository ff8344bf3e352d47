//! `info/last_cmd_status`: the error text of the last command.

/// Size of the kernel's buffer, including the final NUL (`last_cmd_status_buf`).
const BUFFER: usize = 512;

/// The buffer behind `last_cmd_status`, a `seq_buf` of the kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastCmdStatus {
    text: Vec<u8>,
    full: bool,
}

impl LastCmdStatus {
    /// Clears the text; every command that may leave a text does this first.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.full = false;
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, line: &str) {
        self.quote(line, b"", "");
    }

    /// Adds a text without a newline.
    pub(crate) fn word(&mut self, word: &str) {
        self.add(&[word.as_bytes()]);
    }

    /// Adds a line that quotes the written text.
    pub(crate) fn quote(&mut self, before: &str, text: &[u8], after: &str) {
        self.add(&[before.as_bytes(), text, after.as_bytes(), b"\n"]);
    }

    /// Adds text; what does not fit is cut off, and nothing is added after that (`seq_buf_printf`).
    fn add(&mut self, parts: &[&[u8]]) {
        if self.full {
            return;
        }
        self.text.extend(parts.concat());
        if self.text.len() >= BUFFER {
            self.text.truncate(BUFFER - 1);
            self.full = true;
        }
    }

    /// The content of the file.
    pub(crate) fn show(&self) -> Vec<u8> {
        if self.text.is_empty() { b"ok\n".to_vec() } else { self.text.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_does_not_fit_is_cut() {
        let mut status = LastCmdStatus::default();
        assert_eq!(status.show(), b"ok\n");
        status.quote("Missing '", &[b'x'; 600], "' value");
        assert_eq!(status.show().len(), 511);
        status.line("more");
        assert_eq!(status.show().len(), 511);
        status.clear();
        status.line("first");
        status.quote("No task ", b"7", "");
        assert_eq!(status.show(), b"first\nNo task 7\n");
    }
}
