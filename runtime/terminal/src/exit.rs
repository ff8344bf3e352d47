//! Exit codes of commands: 0 success, 1 a bad answer, 2 wrong usage.

use std::process::ExitCode;

use crate::print;

/// What clap shows below each program's help.
pub const EXIT_CODES: &str =
    "Exit codes: 0 success; 1 the result is bad (a problem, a refusal, not found); 2 wrong arguments or input.";

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Success: exit code 0.
    Good,
    /// The command ran, and its result is bad: exit code 1.
    Bad,
}

/// The arguments, or a document that they name, are wrong: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Prints the error, if there is one, and returns the exit code. `is_usage` selects the errors that mean wrong usage, in
/// addition to [`Usage`].
pub fn end(answer: anyhow::Result<Answer>, is_usage: impl Fn(&anyhow::Error) -> bool) -> ExitCode {
    ExitCode::from(match answer {
        Ok(Answer::Good) => 0,
        Ok(Answer::Bad) => 1,
        // A reader that closes the pipe early (`qosm get knobs | head`) is not a failure.
        Err(error) if print::is_closed_pipe(&error) => 0,
        Err(error) => {
            print::error(&error);
            if error.is::<Usage>() || is_usage(&error) { 2 } else { 1 }
        }
    })
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn an_exit_code_says_whether_the_answer_is_bad_or_the_question() {
        let closed = || anyhow::Error::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe)).context("printing");
        let wrongly = || anyhow::Error::from(Usage("--for `x`: no duration".to_owned()));
        for (answer, code) in [
            (Ok(Answer::Good), 0),
            (Ok(Answer::Bad), 1),
            (Err(anyhow!("the node refuses")), 1),
            (Err(anyhow!("a recording that is none")), 2),
            (Err(wrongly()), 2),
            (Err(closed()), 0),
        ] {
            let said = format!("{answer:?}");
            let ended = end(answer, |error| error.to_string().starts_with("a recording"));
            assert_eq!(format!("{ended:?}"), format!("{:?}", ExitCode::from(code)), "{said}");
        }
    }
}
