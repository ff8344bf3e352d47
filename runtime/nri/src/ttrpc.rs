//! Calls of ttrpc, the little protocol between containerd and its helpers: a header of ten bytes, then a `Request` or a `Response`.
//!
//! containerd/ttrpc, PROTOCOL.md. Only calls with one request and one response are supported; the crate `ttrpc` needs a socket of its
//! own, while NRI has two directions on one.

use bytes::{Buf, BufMut, BytesMut};
use prost::Message;

/// Bytes of a header: length of the data, stream, kind, flags.
pub(crate) const HEADER: usize = 10;
/// Maximum length of a message's data, in bytes.
pub(crate) const MAX_MESSAGE: usize = 4 << 20;

pub(crate) const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;

/// google.rpc.Code for a method that does not exist.
pub(crate) const UNIMPLEMENTED: i32 = 12;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Request {
    #[prost(string, tag = "1")]
    pub(crate) service: String,
    #[prost(string, tag = "2")]
    pub(crate) method: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) payload: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Response {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<Status>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) payload: Vec<u8>,
}

/// google.rpc.Status.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

/// A message that arrived.
#[derive(Debug)]
pub(crate) enum Incoming {
    Request(u32, Request),
    Response(u32, Response),
    /// A message of another kind, or one that cannot be read; with its stream.
    Unreadable(u32),
}

/// A message that is longer than any sender makes.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {0} bytes, where {MAX_MESSAGE} are the most")]
pub struct MessageTooLong(usize);

/// Takes the next message that has arrived whole.
pub(crate) fn take(arrived: &mut BytesMut) -> Result<Option<Incoming>, MessageTooLong> {
    let Some(mut header) = arrived.get(..HEADER) else { return Ok(None) };
    let length = usize::try_from(header.get_u32()).unwrap_or(usize::MAX);
    let (stream, kind) = (header.get_u32(), header.get_u8());
    if length > MAX_MESSAGE {
        return Err(MessageTooLong(length));
    }
    if arrived.len() < HEADER + length {
        return Ok(None);
    }
    arrived.advance(HEADER);
    let data = arrived.split_to(length);
    Ok(Some(match kind {
        REQUEST => Request::decode(data).map_or(Incoming::Unreadable(stream), |data| Incoming::Request(stream, data)),
        RESPONSE => {
            Response::decode(data).map_or(Incoming::Unreadable(stream), |data| Incoming::Response(stream, data))
        }
        _ => Incoming::Unreadable(stream),
    }))
}

/// Encodes a call of a method.
pub(crate) fn request(stream: u32, service: &str, method: &str, payload: &impl Message) -> Vec<u8> {
    let request = Request { service: service.to_owned(), method: method.to_owned(), payload: payload.encode_to_vec() };
    message(stream, REQUEST, &request)
}

/// Encodes the answer to a call.
pub(crate) fn response(stream: u32, payload: Vec<u8>) -> Vec<u8> {
    message(stream, RESPONSE, &Response { status: None, payload })
}

/// Encodes the answer to a call that cannot be served.
pub(crate) fn failure(stream: u32, code: i32, why: String) -> Vec<u8> {
    message(stream, RESPONSE, &Response { status: Some(Status { code, message: why }), payload: Vec::new() })
}

pub(crate) fn message(stream: u32, kind: u8, data: &impl Message) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + data.encoded_len());
    // Outgoing messages are short.
    out.put_u32(u32::try_from(data.encoded_len()).unwrap_or(u32::MAX));
    out.put_u32(stream);
    out.put_u8(kind);
    out.put_u8(0);
    out.extend(data.encode_to_vec());
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_call_reads_back(stream: u32, service in ".{0,20}", payload in prop::collection::vec(any::<u8>(), 0..200)) {
            let sent = Request { service, method: "M".to_owned(), payload };
            let mut line = BytesMut::from(&message(stream, REQUEST, &sent)[..]);
            let short = line.split_off(line.len() - 1);
            prop_assert!(take(&mut line).unwrap().is_none());
            line.unsplit(short);
            match take(&mut line).unwrap() {
                Some(Incoming::Request(of, read)) => prop_assert_eq!((of, read), (stream, sent)),
                other => prop_assert!(false, "{:?}", other),
            }
            prop_assert!(line.is_empty());
        }

        #[test]
        fn strangers_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut arrived = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = take(&mut arrived) {}
        }
    }

    #[test]
    fn a_message_that_claims_too_much_is_refused_before_it_is_waited_for() {
        let mut arrived = BytesMut::from(&[0xff, 0, 0, 0, 0, 0, 0, 1, 1, 0][..]);
        assert_eq!(take(&mut arrived).unwrap_err(), MessageTooLong(0xff00_0000));
    }
}
