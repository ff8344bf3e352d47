//! NRI's multiplexing: one connection carries the runtime's calls to the plug-in and the plug-in's to the runtime.
//!
//! A frame is the number of the logical connection, the length of the payload (both 32 bits, most significant byte first), and the
//! payload. The payloads of one connection are a stream of bytes.

use bytes::{Buf, BufMut, BytesMut};

/// The connection on which the runtime calls the plug-in.
pub(crate) const PLUGIN: u32 = 1;
/// The connection on which the plug-in calls the runtime.
pub(crate) const RUNTIME: u32 = 2;

const HEADER: usize = 8;
/// Maximum payload of a frame in bytes: one message of ttrpc.
const MAX_FRAME: usize = crate::ttrpc::HEADER + crate::ttrpc::MAX_MESSAGE;
/// Maximum payload of a frame that the plug-in sends, in bytes. The runtime's end reads frames whole, into buffers of this size.
const OUR_FRAME: usize = 4096;

/// A frame that is longer than any sender makes.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {length} bytes on connection {connection}, where {MAX_FRAME} are the most")]
pub struct FrameTooLong {
    connection: u32,
    length: usize,
}

/// Appends bytes to send on a connection, in frames.
pub(crate) fn put(out: &mut BytesMut, connection: u32, bytes: &[u8]) {
    for chunk in bytes.chunks(OUR_FRAME) {
        out.put_u32(connection);
        // A chunk is short.
        out.put_u32(u32::try_from(chunk.len()).unwrap_or(0));
        out.put_slice(chunk);
    }
}

/// Takes the frames that have arrived whole, and appends their payloads to the buffers of their connections.
pub(crate) fn take(arrived: &mut BytesMut, plugin: &mut BytesMut, runtime: &mut BytesMut) -> Result<(), FrameTooLong> {
    while let (Some(connection), Some(length)) = (number(arrived, 0), number(arrived, 4)) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return Err(FrameTooLong { connection, length });
        }
        if arrived.len() < HEADER + length {
            return Ok(());
        }
        arrived.advance(HEADER);
        let carried = arrived.split_to(length);
        match connection {
            PLUGIN => plugin.extend_from_slice(&carried),
            RUNTIME => runtime.extend_from_slice(&carried),
            // Reserved, or of a future protocol.
            _ => {}
        }
    }
    Ok(())
}

fn number(bytes: &BytesMut, at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_sent_arrives_however_it_is_cut(
            sent in prop::collection::vec((1u32..=2, prop::collection::vec(any::<u8>(), 0..9000)), 0..6),
            cuts in prop::collection::vec(1usize..5000, 0..12),
        ) {
            let mut line = BytesMut::new();
            for (connection, bytes) in &sent {
                put(&mut line, *connection, bytes);
            }
            let (mut arrived, mut plugin, mut runtime) = (BytesMut::new(), BytesMut::new(), BytesMut::new());
            for cut in cuts {
                arrived.unsplit(line.split_to(cut.min(line.len())));
                take(&mut arrived, &mut plugin, &mut runtime).unwrap();
            }
            arrived.unsplit(line);
            take(&mut arrived, &mut plugin, &mut runtime).unwrap();
            let of = |wanted: u32| -> Vec<u8> {
                let of = sent.iter().filter(|(connection, _)| *connection == wanted);
                of.flat_map(|(_, bytes)| bytes.clone()).collect()
            };
            prop_assert_eq!(&plugin[..], &of(PLUGIN)[..]);
            prop_assert_eq!(&runtime[..], &of(RUNTIME)[..]);
            prop_assert!(arrived.is_empty());
        }

        #[test]
        fn strangers_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (mut arrived, mut plugin, mut runtime) = (BytesMut::from(&bytes[..]), BytesMut::new(), BytesMut::new());
            let _ = take(&mut arrived, &mut plugin, &mut runtime);
            prop_assert!(plugin.len() + runtime.len() + arrived.len() <= bytes.len());
        }
    }

    #[test]
    fn a_frame_that_claims_too_much_is_refused_before_it_is_waited_for() {
        let mut arrived = BytesMut::from(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff][..]);
        let error = take(&mut arrived, &mut BytesMut::new(), &mut BytesMut::new()).unwrap_err();
        assert_eq!(error, FrameTooLong { connection: 1, length: 0xffff_ffff });
    }
}
