//! `qosm record`: what a running agent sees.

use std::io::Write;

use anyhow::Context;

use crate::args::RecordArgs;
use crate::{Answer, client};

pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<Answer> {
    let mut out: Box<dyn Write> = match &args.file {
        Some(path) => {
            Box::new(std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?)
        }
        None => Box::new(std::io::stdout().lock()),
    };
    let at_most = args.duration.map(|duration| duration.unsigned_abs());
    client::stream(&args.socket.admin_socket, "/v1/record", at_most, |bytes| {
        out.write_all(bytes)?;
        out.flush()?;
        Ok(())
    })?;
    Ok(Answer::Good)
}
