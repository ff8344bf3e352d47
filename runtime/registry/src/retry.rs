//! Retries of transient errors: a few tries, with growing pauses, or when the registry asks for them.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};

use crate::error::RegistryError;

/// Tries beside the first.
const TRIES: usize = 4;
/// A registry that asks for a longer pause than this fails the request instead.
const MAX_PATIENCE: Duration = Duration::from_secs(60);

/// Does it, again where the error is of the kind that passes.
pub(crate) async fn retry<T, F, Doing>(what: &str, doing: F) -> Result<T, RegistryError>
where
    F: FnMut() -> Doing,
    Doing: Future<Output = Result<T, RegistryError>>,
{
    let slower = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(250))
        .with_max_delay(Duration::from_secs(10))
        .with_max_times(TRIES)
        .with_jitter();
    doing
        .retry(slower)
        .when(|error| error.is_transient() && error.retry_after().is_none_or(|wait| wait <= MAX_PATIENCE))
        .adjust(|error, planned| planned.map(|planned| error.retry_after().map_or(planned, |wait| wait.max(planned))))
        .notify(|error, wait| tracing::debug!(what, %error, wait_millis = wait.as_millis(), "trying again"))
        .await
}
