//! What commands print.

use std::io::{self, ErrorKind, Write};

/// Standard output, whose reader may leave early, as in `| head`. What is
/// written after that goes nowhere: the exit code is still worth having.
#[derive(Debug, Default)]
pub struct Output {
    is_closed: bool,
}

impl Output {
    /// Does `write` unless nobody reads any more, which is no error.
    fn attempt<T>(
        &mut self,
        otherwise: T,
        write: impl FnOnce(&mut io::StdoutLock<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.is_closed {
            return Ok(otherwise);
        }
        match write(&mut io::stdout().lock()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(otherwise)
            }
            result => result,
        }
    }
}

impl Write for Output {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.attempt(octets.len(), |out| out.write(octets))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt((), |out| out.flush())
    }
}

/// Why something could not be printed.
pub fn explain(error: io::Error) -> String {
    format!("cannot write to standard output: {error}")
}
