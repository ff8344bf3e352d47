//! Progress bars of transfers, shown only on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use qosm_registry::TransferProgress;

/// A progress bar for the blob that is being transferred.
#[derive(Default)]
pub struct Bars {
    bar: Option<ProgressBar>,
}

impl TransferProgress for Bars {
    fn begin(&mut self, what: &str, bytes: u64) {
        let bar = ProgressBar::new(bytes).with_message(what.to_owned());
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        self.bar = Some(bar);
    }

    fn more(&mut self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
