// SPDX-License-Identifier: GPL-2.0

//! Frames in a stream of bytes, as QEMU's `-netdev stream` has them: the length of each, in four
//! bytes of which the highest is first, and the frame. Nothing here does I/O.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::frame::{Frame, MOST};

/// Bytes of a length.
const HEAD: usize = 4;

/// A length that no frame has: the place of the next one cannot be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLength(pub u32);

impl std::fmt::Display for BadLength {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a frame of {} bytes", self.0)
    }
}

/// The frame that is being read.
#[derive(Debug, Default)]
pub struct Input {
    head: Vec<u8>,
    /// The bytes that the frame still needs, once its length is known.
    left: Option<usize>,
    frame: Vec<u8>,
}

impl Input {
    /// Takes what was read, and calls `each` with the bytes of each frame that is complete: no more
    /// than [`MOST`], and maybe too few.
    ///
    /// # Errors
    ///
    /// The stream makes no sense; nothing more can be read from it.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(Vec<u8>),
    ) -> Result<(), BadLength> {
        loop {
            let left = match self.left {
                Some(left) => left,
                None => {
                    let missing = HEAD.saturating_sub(self.head.len());
                    let (head, rest) = bytes.split_at(missing.min(bytes.len()));
                    self.head.extend(head);
                    bytes = rest;
                    let Some(head) = self.head.first_chunk::<HEAD>() else {
                        return Ok(());
                    };
                    let told = u32::from_be_bytes(*head);
                    let length = usize::try_from(told).ok().filter(|&length| length <= MOST);
                    let length = length.ok_or(BadLength(told))?;
                    self.head.clear();
                    self.frame.reserve_exact(length);
                    length
                }
            };
            let (part, rest) = bytes.split_at(left.min(bytes.len()));
            self.frame.extend(part);
            bytes = rest;
            let left = left.saturating_sub(part.len());
            if left != 0 {
                self.left = Some(left);
                return Ok(());
            }
            self.left = None;
            each(std::mem::take(&mut self.frame));
        }
    }
}

/// Frames that are being written.
#[derive(Debug, Default)]
pub struct Output {
    frames: VecDeque<(Frame, [u8; HEAD])>,
    /// Bytes of the first, with its length, that have gone.
    gone: usize,
}

impl Output {
    /// Frames that are taken from a queue at once.
    pub const BATCH: usize = 64;

    /// Whether nothing is being written.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// How many more frames are wanted.
    pub fn wanted(&self) -> usize {
        Self::BATCH.saturating_sub(self.frames.len())
    }

    /// Adds a frame.
    pub fn push(&mut self, frame: Frame) {
        let length = u32::try_from(frame.bytes().len()).unwrap_or(0);
        self.frames.push_back((frame, length.to_be_bytes()));
    }

    /// The first frame.
    pub fn front(&self) -> Option<&Frame> {
        self.frames.front().map(|(frame, _)| frame)
    }

    /// Takes the first frame away, which has gone as a whole.
    pub fn pop(&mut self) {
        self.frames.pop_front();
    }

    /// All bytes that are to be written.
    pub fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut gone = self.gone;
        let mut slices = Vec::with_capacity(2 * Self::BATCH);
        for (frame, head) in &self.frames {
            for piece in [&head[..], frame.bytes()] {
                let (before, rest) = piece.split_at(gone.min(piece.len()));
                gone = gone.saturating_sub(before.len());
                if !rest.is_empty() {
                    slices.push(IoSlice::new(rest));
                }
            }
        }
        slices
    }

    /// So many bytes have gone.
    pub fn advance(&mut self, bytes: usize) {
        self.gone = self.gone.saturating_add(bytes);
        while let Some((frame, _)) = self.frames.front() {
            let whole = frame.bytes().len().saturating_add(HEAD);
            let Some(rest) = self.gone.checked_sub(whole) else {
                return;
            };
            self.gone = rest;
            self.frames.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(frames: &[Frame]) -> Vec<u8> {
        let mut output = Output::default();
        frames.iter().for_each(|frame| output.push(frame.clone()));
        output
            .slices()
            .iter()
            .flat_map(|slice| slice.to_vec())
            .collect()
    }

    #[test]
    fn lengths() {
        let mut input = Input::default();
        let mut found = Vec::new();
        let most = MOST as u32;
        input.push(&[0, 0, 0], |frame| found.push(frame)).unwrap();
        input
            .push(&[0, 0, 0, 0, 1, 7], |frame| found.push(frame))
            .unwrap();
        assert_eq!(found, [vec![], vec![7]]);
        input.push(&most.to_be_bytes(), drop).unwrap();
        input
            .push(&vec![1; MOST], |frame| assert_eq!(frame.len(), MOST))
            .unwrap();
        for bad in [most + 1, u32::MAX] {
            let refused = Input::default().push(&bad.to_be_bytes(), drop);
            assert_eq!(refused, Err(BadLength(bad)));
        }
    }

    proptest! {
        /// However the stream is cut at either end, the same frames come out of it.
        #[test]
        fn frames_come_out_whole(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 14..80), 1..20),
            cuts in prop::collection::vec(1usize..50, 1..30),
        ) {
            let frames: Vec<_> = frames.into_iter().map(|bytes| Frame::new(bytes).unwrap()).collect();
            let all = written(&frames);
            let mut output = Output::default();
            frames.iter().for_each(|frame| output.push(frame.clone()));
            let (mut input, mut found, mut told) = (Input::default(), Vec::new(), Vec::<u8>::new());
            let mut cuts = cuts.iter().cycle();
            while !output.is_empty() {
                let bytes: Vec<u8> = output.slices().iter().flat_map(|slice| slice.to_vec()).collect();
                let count = (*cuts.next().unwrap()).min(bytes.len());
                output.advance(count);
                told.extend(&bytes[..count]);
                input.push(&bytes[..count], |frame| found.push(Frame::new(frame).unwrap())).unwrap();
            }
            prop_assert_eq!(told, all);
            prop_assert_eq!(found, frames);
        }
    }
}
