//! Runs exchanges with an agent, a registry or an API server.

/// Runs an exchange to completion and blocks until then.
///
/// # Errors
///
/// Those of the exchange, or if this process cannot open another file.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
