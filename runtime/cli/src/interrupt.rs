//! Being asked to end: by Ctrl-C, or by whoever started this process.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// From now on SIGINT, SIGTERM and SIGHUP no longer end the process, but the first of them calls `tell`, on a thread of its own.
pub(crate) fn listen(tell: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().context("signals cannot be heard")?;
    let (mut interrupt, mut terminate, mut hang_up) = {
        let _inside = runtime.enter();
        let hear = |kind| signal(kind).context("signals cannot be heard");
        (hear(SignalKind::interrupt())?, hear(SignalKind::terminate())?, hear(SignalKind::hangup())?)
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {}, _ = hang_up.recv() => {} }
            });
            // A second one does not cut short what the first one began: tokio keeps them for as long as the process lives.
            tell();
        })
        .context("signals cannot be heard")?;
    Ok(())
}
