//! What runs now and how much is left, on stderr.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Counts towards a known total, with the time left.
#[derive(Debug)]
pub struct Progress {
    label: String,
    total: usize,
    started: Instant,
    shown: Option<Instant>,
    terminal: bool,
}

impl Progress {
    pub fn new(label: impl Into<String>, total: usize) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        Progress { label: label.into(), total, started: Instant::now(), shown: None, terminal }
    }

    /// Shows `done` now and then: often on a terminal, rarely in a log.
    pub fn show(&mut self, done: usize) {
        let pause = Duration::from_secs(if self.terminal { 1 } else { 10 });
        let now = Instant::now();
        if now.duration_since(self.shown.unwrap_or(self.started)) < pause || done == 0 {
            return;
        }
        self.shown = Some(now);
        let elapsed = self.started.elapsed().as_secs_f64();
        let left = elapsed / done as f64 * self.total.saturating_sub(done) as f64;
        let line = format!("{}: {done} of {}, about {} left", self.label, self.total, human(left));
        if self.terminal {
            eprint!("\r\x1b[2K{line}");
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{line}");
        }
    }

    /// Ends the line with the total time.
    pub fn finish(self) {
        let clear = if self.terminal && self.shown.is_some() { "\r\x1b[2K" } else { "" };
        let elapsed = self.started.elapsed().as_secs_f64();
        eprintln!("{clear}{}: {} in {}", self.label, self.total, human(elapsed));
    }
}

/// Seconds for people.
pub fn human(seconds: f64) -> String {
    if seconds < 10.0 {
        format!("{seconds:.1} s")
    } else if seconds < 120.0 {
        format!("{seconds:.0} s")
    } else {
        format!("{:.0} min", seconds / 60.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_seconds() {
        assert_eq!(human(1.25), "1.2 s");
        assert_eq!(human(42.4), "42 s");
        assert_eq!(human(600.0), "10 min");
    }
}
