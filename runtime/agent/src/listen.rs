//! A web server for untrusted clients: idle connections cost little.
//!
//! The lifetime of a connection and the time for the head of a request are bounded. So is the number of open connections: to accept one
//! more, the oldest connection of the address with the most connections is closed. So a node's monitoring and the kubelet's probes get
//! through while another client fills the port.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Maximum number of open connections.
    pub(crate) connections: usize,
    /// Time limit for the head of each request.
    pub(crate) head: Duration,
    /// Maximum lifetime of a connection. A client that asks regularly opens a new one.
    pub(crate) life: Duration,
}

/// Buffer of a connection in bytes, for the head of a request and for data that is read ahead.
const BUFFER: usize = 16 << 10;

impl Default for Bounds {
    /// With [`BUFFER`], all connections take up to two megabytes.
    fn default() -> Self {
        Self { connections: 128, head: Duration::from_secs(5), life: Duration::from_secs(60) }
    }
}

/// Serves until the listener fails for good.
#[expect(clippy::disallowed_methods, reason = "each connection is answered by a task of its own")]
pub(crate) async fn serve(listener: TcpListener, router: Router, bounds: Bounds) -> std::io::Result<()> {
    let open = Arc::new(Open::default());
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) if is_about_one_connection(&error) => continue,
            // Out of descriptors or memory: open connections end, and free some again.
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        open.make_room(bounds.connections);
        let number = open.next.fetch_add(1, Ordering::Relaxed);
        let (router, closing) = (router.clone(), Closing { open: Arc::clone(&open), number });
        let task = tokio::spawn(async move {
            let _closing = closing;
            answer(stream, router, bounds).await;
        });
        open.add(number, peer.ip().to_canonical(), task.abort_handle());
        if task.is_finished() {
            open.remove(number);
        }
    }
}

/// Serves one client. It may disconnect at any time.
async fn answer(stream: TcpStream, router: Router, bounds: Bounds) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(bounds.head).max_buf_size(BUFFER);
    let mut connection =
        std::pin::pin!(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)));
    if timeout(bounds.life, connection.as_mut()).await.is_err() {
        // Running requests are answered; then the connection closes.
        connection.as_mut().graceful_shutdown();
        timeout(bounds.head, connection).await.ok();
    }
}

fn is_about_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// The open connections by number; later connections have larger numbers.
#[derive(Default)]
struct Open {
    next: AtomicU64,
    connections: Mutex<HashMap<u64, (IpAddr, AbortHandle)>>,
}

impl Open {
    fn connections(&self) -> MutexGuard<'_, HashMap<u64, (IpAddr, AbortHandle)>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, number: u64, peer: IpAddr, task: AbortHandle) {
        self.connections().insert(number, (peer, task));
    }

    fn remove(&self, number: u64) {
        self.connections().remove(&number);
    }

    /// Closes connections until one more may be opened.
    fn make_room(&self, most: usize) {
        let mut connections = self.connections();
        while connections.len() >= most.max(1) {
            let mut peers: HashMap<IpAddr, (usize, u64)> = HashMap::new();
            for (&number, (peer, _)) in connections.iter() {
                let (count, oldest) = peers.entry(*peer).or_insert((0, number));
                *count += 1;
                *oldest = number.min(*oldest);
            }
            let oldest = peers.into_values().max_by_key(|(count, oldest)| (*count, u64::MAX - oldest));
            let Some((_, (_, task))) = oldest.and_then(|(_, oldest)| connections.remove_entry(&oldest)) else { return };
            task.abort();
        }
    }
}

/// Removes a connection from the list, however it ends.
struct Closing {
    open: Arc<Open>,
    number: u64,
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.open.remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const HALF: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-half: ";
    const WHOLE: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

    fn run<T>(test: impl Future<Output = T>) -> std::io::Result<T> {
        Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(test))
    }

    async fn server(bounds: Bounds) -> std::io::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(serve(listener, Router::new().route("/healthz", get(|| async { "ok\n" })), bounds));
        Ok(address)
    }

    /// Reads until the server closes the connection.
    async fn to_the_end(stream: &mut TcpStream) -> String {
        let mut answer = Vec::new();
        // A connection that is reset is closed as well.
        stream.read_to_end(&mut answer).await.ok();
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn ask(address: SocketAddr) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(WHOLE).await?;
        Ok(to_the_end(&mut stream).await)
    }

    #[test]
    fn half_requests_are_closed_when_their_head_does_not_come() -> std::io::Result<()> {
        run(async {
            let address = server(Bounds { connections: 64, head: Duration::from_millis(200), life: LONG }).await?;
            let mut half = TcpStream::connect(address).await?;
            half.write_all(HALF).await?;
            let mut silent = TcpStream::connect(address).await?;
            // A client that keeps sending a little is disconnected all the same.
            let (mut dripping, mut writing) = TcpStream::connect(address).await?.into_split();
            let drips = tokio::spawn(async move {
                let mut next = HALF;
                while writing.write_all(next).await.is_ok() {
                    next = b"x";
                    sleep(Duration::from_millis(20)).await;
                }
            });
            let all = async {
                to_the_end(&mut half).await;
                to_the_end(&mut silent).await;
                dripping.read_to_end(&mut Vec::new()).await.ok();
                drips.await.ok();
            };
            assert!(timeout(LONG, all).await.is_ok(), "they are still open");
            assert!(ask(address).await?.ends_with("ok\n"));
            Ok(())
        })?
    }

    #[test]
    fn a_probe_gets_through_while_somebody_holds_the_port_full() -> std::io::Result<()> {
        run(async {
            let address = server(Bounds { connections: 16, head: LONG, life: LONG }).await?;
            let mut held = Vec::new();
            for _ in 0..200 {
                let mut half = TcpStream::connect(address).await?;
                half.write_all(HALF).await?;
                held.push(half);
                // The server is another task of this thread.
                tokio::task::yield_now().await;
            }
            assert!(ask(address).await?.starts_with("HTTP/1.1 200"), "the probe has no answer");
            // No more than the maximum are still open.
            let mut open = 0;
            for half in &mut held {
                let mut byte = [0];
                open += usize::from(timeout(Duration::from_millis(20), half.read(&mut byte)).await.is_err());
            }
            assert!((1..=16).contains(&open), "{open} are open");
            Ok(())
        })?
    }

    #[test]
    fn a_connection_ends_and_what_it_asked_last_is_answered() -> std::io::Result<()> {
        run(async {
            let bounds = Bounds { connections: 16, head: LONG, life: Duration::from_millis(300) };
            let address = server(bounds).await?;
            let mut kept = TcpStream::connect(address).await?;
            kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await?;
            let answer = timeout(LONG, to_the_end(&mut kept)).await;
            assert!(answer.is_ok_and(|answer| answer.ends_with("ok\n")), "it is kept open");
            Ok(())
        })?
    }

    #[test]
    fn of_whoever_has_most_connections_one_is_closed() -> std::io::Result<()> {
        run(async {
            let open = Open::default();
            let idle = || tokio::spawn(std::future::pending::<()>()).abort_handle();
            let [kubelet, stranger] = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])];
            for (number, peer) in [(0, kubelet), (1, stranger), (2, stranger), (3, stranger)] {
                open.add(number, peer, idle());
            }
            open.make_room(4);
            let mut left: Vec<u64> = open.connections().keys().copied().collect();
            left.sort_unstable();
            assert_eq!(left, [0, 2, 3], "the oldest of the one with three");
        })
    }
}
