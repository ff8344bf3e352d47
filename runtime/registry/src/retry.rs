//! Retries of transient errors, with growing pauses or the pause that the registry requests.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};

use crate::error::RegistryError;

/// Number of attempts after the first.
const TRIES: usize = 4;
/// Longest pause that a registry may request; a longer one fails the request.
const MAX_PATIENCE: Duration = Duration::from_secs(60);

/// Runs `doing`, and again after transient errors.
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
