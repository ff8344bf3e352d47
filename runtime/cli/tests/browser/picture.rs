//! Decodes the PNG files that a browser writes.

use std::collections::HashMap;
use std::io::Read;

use flate2::read::ZlibDecoder;

/// A picture with eight bits per channel.
pub(crate) struct Picture {
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// Number of pixels of each colour.
    colours: HashMap<[u8; 3], usize>,
}

impl Picture {
    /// Decodes a PNG with eight bits per channel, with or without transparency, and not interlaced.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let mut rest = bytes.strip_prefix(b"\x89PNG\r\n\x1a\n").expect("a PNG");
        let (mut header, mut packed) = (None, Vec::new());
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let length = usize::try_from(u32::from_be_bytes(*length)).unwrap();
            let (kind, data) = after[..length + 4].split_at(4);
            match kind {
                b"IHDR" => header = Some(data),
                b"IDAT" => packed.extend_from_slice(data),
                _ => {}
            }
            // The checksum ends a chunk.
            rest = &after[length + 8..];
        }
        let header = header.expect("a header");
        let number = |at: usize| usize::try_from(u32::from_be_bytes(header[at..at + 4].try_into().unwrap())).unwrap();
        let (width, height) = (number(0), number(4));
        let channels = match header[8..13] {
            [8, 2, 0, 0, 0] => 3,
            [8, 6, 0, 0, 0] => 4,
            ref other => panic!("a kind of PNG that no browser wrote before: {other:?}"),
        };
        let mut lines = Vec::new();
        ZlibDecoder::new(&*packed).read_to_end(&mut lines).unwrap();
        assert_eq!(lines.len(), height * (1 + width * channels));
        let mut colours = HashMap::new();
        let mut above = vec![0; width * channels];
        for line in lines.chunks_exact(1 + width * channels) {
            above = unfiltered(line[0], &line[1..], &above, channels);
            for point in above.chunks_exact(channels) {
                *colours.entry([point[0], point[1], point[2]]).or_default() += 1;
            }
        }
        Self { width, height, colours }
    }

    /// Number of different colours.
    pub(crate) fn colours(&self) -> usize {
        self.colours.len()
    }

    /// Brightness of the background, the most frequent colour: 0 to 255.
    pub(crate) fn ground(&self) -> u8 {
        let (colour, _) = self.colours.iter().max_by_key(|(_, points)| **points).unwrap();
        *colour.iter().max().unwrap()
    }

    /// Whether any pixel has this colour.
    pub(crate) fn has(&self, colour: [u8; 3]) -> bool {
        self.colours.contains_key(&colour)
    }
}

/// Reverses the filter of a line (PNG, "Filter types for filter method 0").
fn unfiltered(filter: u8, line: &[u8], above: &[u8], channels: usize) -> Vec<u8> {
    let mut made: Vec<u8> = Vec::with_capacity(line.len());
    for (at, byte) in line.iter().enumerate() {
        let before = at.checked_sub(channels);
        let (left, up) = (before.map_or(0, |at| made[at]), above[at]);
        let corner = before.map_or(0, |at| above[at]);
        let predicted = match filter {
            0 => 0,
            1 => left,
            2 => up,
            3 => u8::try_from((u16::from(left) + u16::from(up)) / 2).unwrap(),
            4 => paeth(left, up, corner),
            other => panic!("there is no filter {other}"),
        };
        made.push(byte.wrapping_add(predicted));
    }
    made
}

fn paeth(left: u8, up: u8, corner: u8) -> u8 {
    let estimate = i16::from(left) + i16::from(up) - i16::from(corner);
    let distance = |of: u8| (estimate - i16::from(of)).abs();
    if distance(left) <= distance(up) && distance(left) <= distance(corner) {
        left
    } else if distance(up) <= distance(corner) {
        up
    } else {
        corner
    }
}
