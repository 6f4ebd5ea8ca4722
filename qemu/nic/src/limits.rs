// SPDX-License-Identifier: GPL-2.0

//! The limits that the process runs under.

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// Lets the process have as many open files as it may. A guest takes up to 37: two listeners and two connections, a signal,
/// and its vectors. The usual soft limit, 1024, is for programs that call select(2).
///
/// # Errors
///
/// The kernel refuses.
pub fn raise_open_files() -> rustix::io::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let maximum = getrlimit(Resource::Nofile).maximum.unwrap();
        let lower = Rlimit {
            current: Some(maximum - 1),
            maximum: Some(maximum),
        };
        setrlimit(Resource::Nofile, lower).unwrap();
        raise_open_files().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, Some(maximum));
    }
}
