// SPDX-License-Identifier: GPL-2.0

//! The program itself, by its options.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{kill_process, Pid, Signal};

use crate::driver::eventually;

/// A running program, which is ended with this.
pub struct Running {
    child: Child,
    log: PathBuf,
}

fn command(options: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrule-nic"));
    command.args(options);
    command
}

/// Runs the program to its end; answers its exit status, and what it has printed.
pub fn run(options: &[String]) -> (Option<i32>, String, String) {
    let output = command(options).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

impl Running {
    /// Starts it, with its log in a file, which a directory for sockets takes with it.
    pub fn new(options: &[String], log: PathBuf) -> Self {
        Self::start(command(options), log)
    }

    /// As [`Running::new`], behind a command of the shell.
    pub fn behind(first: &str, options: &[String], log: PathBuf) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{first} && exec \"$0\" \"$@\"")]);
        command.arg(env!("CARGO_BIN_EXE_ferrule-nic")).args(options);
        Self::start(command, log)
    }

    fn start(mut command: Command, log: PathBuf) -> Self {
        command.stderr(Stdio::from(File::create(&log).unwrap()));
        let child = command.spawn().unwrap();
        Self { child, log }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The lines of its log, without their times.
    pub fn log(&self) -> Vec<String> {
        lines(&std::fs::read_to_string(&self.log).unwrap())
    }

    /// Waits until its log has a line with these words.
    pub fn tells(&self, words: &str) {
        eventually(words, || {
            self.log()
                .iter()
                .any(|line| line.contains(words))
                .then_some(())
        });
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it, so that it reads nothing any more.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        eventually("a stopped process", || {
            let mut tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
            let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
                let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
                stat.rsplit_once(") ").unwrap().1.starts_with('T')
            };
            tasks.all(is_stopped).then_some(())
        });
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends it as a user does.
    pub fn end(mut self) {
        self.signal(Signal::TERM);
        assert!(self.child.wait().unwrap().success());
    }

    /// Ends it as a fault of its own would.
    pub fn kill(self) {}
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a log, without their times.
pub fn lines(log: &str) -> Vec<String> {
    let line = |line: &str| {
        line.split_once(' ')
            .map_or("", |(_, rest)| rest.trim())
            .to_owned()
    };
    log.lines().map(line).collect()
}

/// The option that names a guest's socket.
pub fn guest(path: &Path) -> String {
    format!("--guest={}", path.display())
}
