// SPDX-License-Identifier: GPL-2.0

//! The vectors of MSI-X: for each the eventfd by which the client takes it.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{fcntl_getfl, OFlags};
use rustix::io::{write, Errno};

/// The eventfds that a client has handed over.
#[derive(Debug)]
pub struct Vectors(Vec<Option<OwnedFd>>);

impl Vectors {
    /// So many vectors, without a file.
    pub fn new(count: u16) -> Self {
        Self((0..count).map(|_| None).collect())
    }

    fn range(&mut self, start: u32, count: u32) -> Result<&mut [Option<OwnedFd>], Errno> {
        let first = usize::try_from(start).map_err(|_| Errno::INVAL)?;
        let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
        self.0
            .get_mut(first..)
            .and_then(|rest| rest.get_mut(..count))
            .ok_or(Errno::INVAL)
    }

    /// Takes files for vectors from `start` on; or with no file, forgets those of `count` vectors.
    ///
    /// # Errors
    ///
    /// There are not so many vectors or files, or a file is no eventfd that never blocks. Nothing
    /// has changed then.
    pub fn assign(&mut self, start: u32, count: u32, files: Vec<OwnedFd>) -> Result<(), Errno> {
        let vectors = self.range(start, count)?;
        if files.is_empty() {
            vectors.iter_mut().for_each(|vector| *vector = None);
            return Ok(());
        }
        if files.len() != vectors.len() || !files.iter().all(is_eventfd) {
            return Err(Errno::INVAL);
        }
        for (vector, file) in vectors.iter_mut().zip(files) {
            *vector = Some(file);
        }
        Ok(())
    }

    /// Forgets all files.
    pub fn clear(&mut self) {
        self.0.iter_mut().for_each(|vector| *vector = None);
    }

    /// Raises a vector, if its client takes it.
    ///
    /// A client can clear `O_NONBLOCK`, and a write to an eventfd that is full waits then. So this
    /// looks first. One that the client fills between look and write still holds the caller up,
    /// which is the thread of this client alone.
    pub fn raise(&self, vector: u32) {
        let file = usize::try_from(vector)
            .ok()
            .and_then(|vector| self.0.get(vector)?.as_ref());
        // One that is full has been raised already.
        if let Some(file) = file.filter(|file| takes_write(file)) {
            let _ = write(file, &1u64.to_ne_bytes());
        }
    }

    /// Raises vectors from `start` on.
    ///
    /// # Errors
    ///
    /// There are not so many.
    pub fn raise_all(&mut self, start: u32, count: u32) -> Result<(), Errno> {
        self.range(start, count)?;
        (start..start.saturating_add(count)).for_each(|vector| self.raise(vector));
        Ok(())
    }
}

/// Whether a write of 1 would not wait.
fn takes_write(file: &OwnedFd) -> bool {
    let mut files = [PollFd::new(file, PollFlags::OUT)];
    // A counter that has overflown reports an error, and takes none either.
    poll(&mut files, Some(&Timespec::default())).is_ok()
        && files
            .iter()
            .all(|file| file.revents().contains(PollFlags::OUT))
}

/// A write to anything else, such as a pipe, could block, or be seen by someone.
fn is_eventfd(file: &OwnedFd) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let flags = fcntl_getfl(file);
    link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]")
        && flags.is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use rustix::event::{eventfd, EventfdFlags};
    use rustix::fs::fcntl_setfl;

    use super::*;

    #[test]
    fn assigned_and_raised() {
        let mut vectors = Vectors::new(4);
        let file = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let other = file.try_clone().unwrap();
        vectors.assign(3, 1, vec![file]).unwrap();
        vectors.raise_all(0, 4).unwrap();
        vectors.raise(u32::MAX);
        let mut count = [0; 8];
        assert_eq!(rustix::io::read(&other, &mut count), Ok(8));
        assert_eq!(u64::from_ne_bytes(count), 1);
        vectors.assign(0, 4, Vec::new()).unwrap();
        vectors.raise(3);
        assert_eq!(rustix::io::read(&other, &mut count), Err(Errno::AGAIN));
    }

    #[test]
    fn one_that_is_full_holds_nobody_up() {
        let mut vectors = Vectors::new(1);
        let file = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let client = file.try_clone().unwrap();
        vectors.assign(0, 1, vec![file]).unwrap();
        // Both have one open file, so the client's flags and count are those of the vector.
        fcntl_setfl(&client, OFlags::empty()).unwrap();
        write(&client, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let (ends, ended) = channel();
        std::thread::spawn(move || {
            vectors.raise(0);
            ends.send(()).unwrap();
        });
        ended.recv_timeout(Duration::from_secs(5)).unwrap();
    }

    #[test]
    fn refused() {
        let mut vectors = Vectors::new(4);
        let good = || eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        assert_eq!(vectors.assign(4, 1, vec![good()]), Err(Errno::INVAL));
        assert_eq!(vectors.assign(u32::MAX, 2, Vec::new()), Err(Errno::INVAL));
        assert_eq!(vectors.assign(0, u32::MAX, Vec::new()), Err(Errno::INVAL));
        assert_eq!(vectors.assign(0, 2, vec![good()]), Err(Errno::INVAL));
        assert_eq!(
            vectors.assign(0, 1, vec![good(), good()]),
            Err(Errno::INVAL)
        );
        assert_eq!(
            vectors.assign(0, 1, vec![eventfd(0, EventfdFlags::empty()).unwrap()]),
            Err(Errno::INVAL)
        );
        let pipe = rustix::pipe::pipe().unwrap().1;
        assert_eq!(vectors.assign(0, 1, vec![pipe]), Err(Errno::INVAL));
        assert_eq!(vectors.raise_all(3, 2), Err(Errno::INVAL));
    }
}
