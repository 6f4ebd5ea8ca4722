// SPDX-License-Identifier: GPL-2.0

//! The program itself, twice, by its options.

use std::process::{Child, Command, Stdio};

use super::{frame, mac, Peer, Sockets};
use crate::driver::eventually;

/// A running program, which is ended with this.
struct Program(Child);

impl Program {
    fn new(options: &[String]) -> Self {
        let program = env!("CARGO_BIN_EXE_ferrule-nic");
        let child = Command::new(program)
            .args(options)
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    /// Ends it as a user does.
    fn end(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn two_programs_with_a_link() {
    let sockets = Sockets::new();
    let path = |name: &str| sockets.path(name).display().to_string();
    let start = |number: u8, link: &str| {
        let [.., last] = mac(number);
        let guest = path(&format!("g{number}"));
        let net = path(&format!("n{number}"));
        let options = [
            format!("--guest={guest},mac=02:00:00:00:01:{last:02x},net={net}"),
            format!("--link={link}={}", path("link")),
        ];
        Program::new(&options)
    };
    let programs = [start(1, "listen"), start(2, "connect")];
    let [mut one, mut two] = ["n1", "n2"].map(|name| Peer::new(&sockets.path(name)));
    let hello = frame(mac(2), mac(1), b"hello");
    let timeout = std::time::Duration::from_millis(50);
    two.0.set_read_timeout(Some(timeout)).unwrap();
    eventually("a frame", || {
        assert!(one.send(&hello));
        (two.receive()? == hello).then_some(())
    });
    programs.into_iter().for_each(Program::end);
    for name in ["g1", "n1", "g2", "n2", "link"] {
        assert!(!sockets.path(name).exists(), "{name}");
    }
}

#[test]
fn refused_options() {
    for options in [
        &["--guest=g,net="][..],
        &["--guest=g", "--link=tcp"],
        &["--guest=g", "--link=listen=192.0.2.1:7"],
    ] {
        let options: Vec<_> = options.iter().map(|&option| option.to_owned()).collect();
        let mut program = Program::new(&options);
        assert_eq!(program.0.wait().unwrap().code(), Some(2));
    }
    let sockets = Sockets::new();
    let guest = |name: &str| {
        let path = sockets.path(name);
        format!("--guest={},mac=02:00:00:00:00:01", path.display())
    };
    let mut twice = Program::new(&[guest("a"), guest("b")]);
    assert_eq!(twice.0.wait().unwrap().code(), Some(1));
}

#[test]
fn it_tells_what_it_has_counted() {
    let sockets = Sockets::new();
    let path = |name: &str| sockets.path(name).display().to_string();
    let options = [
        format!("--guest={}", path("g")),
        format!("--control={}", path("c")),
    ];
    let program = Program::new(&options);
    let stats = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferrule-nic"));
        command.arg("stats").arg(path("c")).args(more);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        output.status.success().then_some(text)
    };
    let table = eventually("a table", || stats(&[]));
    assert!(table.lines().next().unwrap().ends_with(&path("g")));
    assert!(table.lines().any(|line| line.starts_with("requests ")));
    let text = stats(&["--prometheus"]).unwrap();
    assert!(text.contains("# TYPE ferrule_requests_total counter\n"));
    assert!(text.contains("ferrule_latency_seconds_bucket{guest="));
    program.end();
    assert!(stats(&[]).is_none() && !sockets.path("c").exists());
}
