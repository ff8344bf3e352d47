//! Faults that a test's registry can have.

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

/// What is done instead of answering well.
#[derive(Clone)]
pub(crate) enum Fault {
    /// Another answer altogether.
    Answer { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// A body without end, as an answer of this status; how much of it was taken is counted.
    Endless { status: u16, is_announced: bool, taken: Arc<AtomicU64> },
    /// This many bytes of the object, then the connection breaks.
    Cut(usize),
    /// This many bytes of the whole, with a matching length.
    Short(usize),
    /// These bytes, whatever was asked for.
    Bytes(Vec<u8>),
    /// This many bytes of the object, and then silence.
    Stall(usize),
    /// A byte now and then.
    Slow,
    /// The whole, although a part was asked for.
    Whole,
}

/// The length of an endless body that is read to the end.
pub(crate) const ENDLESS: u64 = 100 << 20;

impl Fault {
    /// An answer without a body.
    pub(crate) fn status(status: u16) -> Self {
        Self::Answer { status, headers: Vec::new(), body: String::new() }
    }

    /// Too many requests: come back later.
    pub(crate) fn later(seconds: u64) -> Self {
        Self::Answer { status: 429, headers: vec![("retry-after", seconds.to_string())], body: String::new() }
    }

    /// What was asked for is elsewhere.
    pub(crate) fn redirect(to: String) -> Self {
        Self::Answer { status: 307, headers: vec![(LOCATION.as_str(), to)], body: String::new() }
    }

    /// A body without end, and the count of what was taken of it.
    pub(crate) fn endless(status: u16, is_announced: bool) -> (Self, Arc<AtomicU64>) {
        let taken = Arc::new(AtomicU64::new(0));
        (Self::Endless { status, is_announced, taken: Arc::clone(&taken) }, taken)
    }

    /// Makes the answer, out of what a good one would be.
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
                // As a registry whose file is short: there is nothing after its end.
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
                    // What was sent before is to arrive before the connection breaks.
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
