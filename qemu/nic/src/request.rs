// SPDX-License-Identifier: GPL-2.0

//! Requests to the control socket: one line each, and the answer up to the end of the stream.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest line: that of the longest path.
const LONGEST: u64 = 4096 + 32;

/// The answer to a request that has been done and asks for nothing.
pub const DONE: &str = "done\n";

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Tell the counters: `stats`, or an empty line.
    Stats,
    /// Begin a capture: `capture PATH`, or `capture-wire-only PATH`.
    Capture {
        /// Where it goes: an absolute path.
        path: PathBuf,
        /// Queue pairs within the process exchange packets, so that these are captured, too.
        wire_only: bool,
    },
    /// End the capture: `end-capture`.
    EndCapture,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Stats => write!(f, "stats"),
            Request::Capture {
                path,
                wire_only: false,
            } => write!(f, "capture {}", path.display()),
            Request::Capture {
                path,
                wire_only: true,
            } => write!(f, "capture-wire-only {}", path.display()),
            Request::EndCapture => write!(f, "end-capture"),
        }
    }
}

impl FromStr for Request {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let capture = |path: &str, wire_only| {
            let path = PathBuf::from(path);
            match path.is_absolute() {
                true => Ok(Request::Capture { path, wire_only }),
                false => Err("the path is not absolute".to_owned()),
            }
        };
        match line.split_once(' ') {
            None if line.is_empty() || line == "stats" => Ok(Request::Stats),
            None if line == "end-capture" => Ok(Request::EndCapture),
            Some(("capture", path)) => capture(path, false),
            Some(("capture-wire-only", path)) => capture(path, true),
            _ => Err("no such request".to_owned()),
        }
    }
}

/// Reads a request, which may be bad. A client that sends nothing asks for the counters.
///
/// # Errors
///
/// The stream has failed.
pub fn read(stream: &UnixStream) -> io::Result<Result<Request, String>> {
    let mut line = Vec::new();
    match BufReader::new(stream)
        .take(LONGEST)
        .read_until(b'\n', &mut line)
    {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
        done => {
            done?;
        }
    }
    let line = String::from_utf8(line);
    Ok(match line {
        Ok(line) => line.trim_end_matches('\n').parse(),
        Err(_) => Err("the request is not in UTF-8".to_owned()),
    })
}

/// Sends a request, and returns what comes back.
///
/// # Errors
///
/// Nobody serves the socket, or the path of a request has a line's end in it or is not in UTF-8.
pub fn ask(socket: &Path, request: &Request) -> io::Result<String> {
    let line = request.to_string();
    if line.parse().as_ref() != Ok(request) || line.contains('\n') {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the file's name has other than printed characters of UTF-8",
        ));
    }
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(line.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_as_lines() {
        let capture = |wire_only| Request::Capture {
            path: "/a b".into(),
            wire_only,
        };
        for request in [
            Request::Stats,
            capture(false),
            capture(true),
            Request::EndCapture,
        ] {
            assert_eq!(request.to_string().parse(), Ok(request));
        }
        assert_eq!("".parse(), Ok(Request::Stats));
        for bad in [
            "capture",
            "capture a",
            "capture-wire-only ",
            "stop",
            "stats now",
        ] {
            assert!(bad.parse::<Request>().is_err(), "{bad}");
        }
    }
}
