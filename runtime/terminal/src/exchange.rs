//! Exchanges with an agent, a registry or an API server.

/// Waits for an exchange, which is all that a command does meanwhile.
///
/// # Errors
///
/// Those of the exchange; when this process may open no more files.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
