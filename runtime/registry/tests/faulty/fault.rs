//! Faults that a test can set in its registry.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_RANGE, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures::{StreamExt as _, stream};

/// What the registry does instead of a correct response.
#[derive(Clone)]
pub(crate) enum Fault {
    /// Another response.
    Answer { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// An endless body with this status; `taken` counts the bytes that the client has read.
    Endless { status: u16, is_announced: bool, taken: Arc<AtomicU64> },
    /// This many bytes of the object, then the connection breaks.
    Cut(usize),
    /// This many bytes of the whole, with a matching length.
    Short(usize),
    /// These bytes instead of the object.
    Bytes(Vec<u8>),
    /// This many bytes of the object, and then silence.
    Stall(usize),
    /// One byte at a time, with pauses.
    Slow,
    /// The whole object, although the request has a range.
    Whole,
}

/// The length at which an endless body ends if the client reads that far, in bytes.
pub(crate) const ENDLESS: u64 = 100 << 20;

impl Fault {
    /// A response without a body.
    pub(crate) fn status(status: u16) -> Self {
        Self::Answer { status, headers: Vec::new(), body: String::new() }
    }

    /// 429, with the number of seconds to wait.
    pub(crate) fn later(seconds: u64) -> Self {
        Self::Answer { status: 429, headers: vec![("retry-after", seconds.to_string())], body: String::new() }
    }

    /// A redirect.
    pub(crate) fn redirect(to: String) -> Self {
        Self::Answer { status: 307, headers: vec![(LOCATION.as_str(), to)], body: String::new() }
    }

    /// An endless body, and the count of the bytes that were read.
    pub(crate) fn endless(status: u16, is_announced: bool) -> (Self, Arc<AtomicU64>) {
        let taken = Arc::new(AtomicU64::new(0));
        (Self::Endless { status, is_announced, taken: Arc::clone(&taken) }, taken)
    }

    /// Changes a correct response into the faulty one.
    pub(crate) fn answer(self, status: StatusCode, mut headers: HeaderMap, body: Bytes, whole: Bytes) -> Response {
        let body = match self {
            Self::Answer { status, headers, body } => {
                let mut response = Response::builder().status(status);
                for (name, value) in headers {
                    response = response.header(name, value);
                }
                return response.body(Body::from(body)).unwrap();
            }
            Self::Endless { status, is_announced, taken } => {
                let mut response = Response::builder().status(status);
                if is_announced {
                    response = response.header(CONTENT_LENGTH, ENDLESS);
                }
                return response.body(endless(taken)).unwrap();
            }
            Self::Short(most) => {
                // Like a registry with a truncated file: nothing follows its end.
                let asked = whole.len() - body.len();
                if asked >= most && asked > 0 {
                    return Response::builder().status(416).body(Body::empty()).unwrap();
                }
                Body::from(body.slice(..most.saturating_sub(asked).min(body.len())))
            }
            Self::Bytes(other) => Body::from(other),
            Self::Whole => {
                headers.remove(CONTENT_RANGE);
                headers.remove(CONTENT_LENGTH);
                let mut response = Response::new(Body::from(whole));
                *response.headers_mut() = headers;
                return response;
            }
            Self::Cut(after) => {
                headers.insert(CONTENT_LENGTH, body.len().into());
                let start = body.slice(..after.min(body.len()));
                let broken = stream::once(async {
                    // Lets the bytes that were sent arrive before the connection breaks.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    Err(io::Error::from(io::ErrorKind::ConnectionReset))
                });
                Body::from_stream(stream::iter([Ok(start)]).chain(broken))
            }
            Self::Stall(after) => {
                headers.insert(CONTENT_LENGTH, body.len().into());
                let start = body.slice(..after.min(body.len()));
                Body::from_stream(stream::iter([Ok::<_, Infallible>(start)]).chain(stream::pending()))
            }
            Self::Slow => {
                headers.insert(CONTENT_LENGTH, body.len().into());
                Body::from_stream(stream::iter(body).then(|byte| async move {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    Ok::<_, Infallible>(Bytes::from(vec![byte]))
                }))
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

fn endless(taken: Arc<AtomicU64>) -> Body {
    let piece = Bytes::from(vec![b' '; 64 << 10]);
    let size = u64::try_from(piece.len()).unwrap();
    Body::from_stream(stream::iter(0..ENDLESS / size).map(move |_| {
        taken.fetch_add(size, Ordering::Relaxed);
        Ok::<_, Infallible>(piece.clone())
    }))
}
