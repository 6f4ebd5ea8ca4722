// SPDX-License-Identifier: GPL-2.0

//! The bytes of a segment get to the other side by a copy job, outside of the shard, if they can.

use crate::{
    base::{
        copy_job::{
            CopyJob,
            JobSize,
            Place,
            SharedBytes, //
        },
        host::{
            Host,
            Job, //
        },
    },
    memory::{
        copy::{
            AtOnce,
            CopyWay,
            Unreachable, //
        },
        key::Keys,
        key_use::Piece,
        sgl::{
            Fragment,
            Fragments,
            Side, //
        },
    },
};

/// The way of a segment that has many bytes.
pub(crate) enum Outside<'a, H: Host> {
    /// A job copies the bytes, if it can. Nothing is copied otherwise.
    Job {
        job: &'a mut Job<H>,
        /// The segment is to be judged again when the job has been carried out.
        is_judged_again: bool,
    },
    /// They are copied at once.
    AtOnce,
    /// A job has copied them.
    Done,
}

impl<H: Host> CopyWay<H> for Outside<'_, H> {
    fn copy_piece(
        &mut self,
        keys: &Keys<H>,
        source: Piece<'_, H>,
        target: Piece<'_, H>,
        length: u32,
    ) -> Result<(), Unreachable> {
        match self {
            Outside::Done => Ok(()),
            Outside::AtOnce => AtOnce.copy_piece(keys, source, target, length),
            Outside::Job {
                job,
                is_judged_again,
            } => {
                let before = job.size();
                let from = Place {
                    key: source.key,
                    offset: source.offset,
                };
                let to = Place {
                    key: target.key,
                    offset: target.offset,
                };
                let share = |key, write| keys.share(key, write);
                let is_planned = job.add(from, to, length, share).is_some();
                planned(job, before, is_planned, *is_judged_again)
            }
        }
    }

    fn copy(
        &mut self,
        keys: &Keys<H>,
        source: Side<'_, H>,
        target: Side<'_, H>,
        length: u32,
    ) -> Result<(), Unreachable> {
        match self {
            Outside::Done => Ok(()),
            Outside::AtOnce => AtOnce.copy(keys, source, target, length),
            Outside::Job {
                job,
                is_judged_again,
            } => {
                let before = job.size();
                let is_planned = plan(keys, source, target, length, job).is_some();
                planned(job, before, is_planned, *is_judged_again)
            }
        }
    }
}

/// The answer to a segment whose copies a job has, or not: then those that it has are taken back.
fn planned<S: SharedBytes>(
    job: &mut CopyJob<S>,
    before: JobSize,
    is_planned: bool,
    is_judged_again: bool,
) -> Result<(), Unreachable> {
    if !is_planned {
        job.cut(before);
    }
    if !is_planned || is_judged_again {
        return Err(Unreachable::Later);
    }
    Ok(())
}

/// Adds the copies to a job. `None` if it cannot have all of them: then it has some, which are to
/// be taken back.
fn plan<H: Host>(
    keys: &Keys<H>,
    mut source: impl Fragments<H>,
    mut target: impl Fragments<H>,
    length: u32,
    job: &mut Job<H>,
) -> Option<()> {
    let mut left = length;
    while left != 0 {
        let (from, at_most) = place(keys, &mut source, left)?;
        let (to, length) = place(keys, &mut target, at_most)?;
        job.add(from, to, length, |key, write| keys.share(key, write))?;
        source.advance(length);
        target.advance(length);
        left = left.wrapping_sub(length);
    }
    Some(())
}

/// The next bytes of a side of a copy that lie in one region, and how many these are.
fn place<H: Host>(
    keys: &Keys<H>,
    side: &mut impl Fragments<H>,
    at_most: u32,
) -> Option<(Place, u32)> {
    let (fragment, length) = side.fragment(keys, at_most)?;
    let Fragment::Memory { offset, key, .. } = fragment else {
        return None;
    };
    Some((Place { key, offset }, length))
}
