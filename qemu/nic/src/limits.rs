// SPDX-License-Identifier: GPL-2.0

//! The limits that the process runs under, and one of the machine's.

use std::path::Path;

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// Lets the process have as many open files as it may. A guest takes up to 37: two listeners and
/// two connections, a signal, and its vectors. The usual soft limit, 1024, is for programs that
/// call select(2).
///
/// # Errors
///
/// The kernel refuses, as where the hard limit is above `fs.nr_open`, which has been lowered since.
pub fn raise_open_files() -> rustix::io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return Ok(());
    }
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit)
}

/// Linux' setting of how memory is promised.
pub const OVERCOMMIT: &str = "/proc/sys/vm/overcommit_memory";

/// A warning, if accesses to guests' memory may find none: files of memory take theirs at the first
/// access of each page, and with this setting the kernel refuses it at the limit, which ends the
/// process (SIGBUS).
pub fn overcommit_warning(setting: &Path) -> Option<&'static str> {
    let value = std::fs::read_to_string(setting).unwrap_or_default();
    (value.trim() == "2").then_some(
        "vm.overcommit_memory is 2: at the limit an access to a guest's memory ends this process; set it to 0 or 1",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_overcommit_is_warned_of() {
        let path = std::env::temp_dir().join(format!("ferrule-nic-{}", std::process::id()));
        let warns = |value: &str| {
            std::fs::write(&path, value).unwrap();
            overcommit_warning(&path).is_some()
        };
        assert_eq!(
            ["0\n", "1\n", "2\n", ""].map(warns),
            [false, false, true, false]
        );
        std::fs::remove_file(&path).unwrap();
        assert!(overcommit_warning(&path).is_none());
    }

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
