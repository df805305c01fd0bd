//! The state of a run in a terminal: once, or for as long as it goes on.

mod picture;
mod screen;
#[cfg(test)]
mod tests;

use std::io::{IsTerminal, Write as _};
use std::time::{Duration, Instant};

use jiff::tz::TimeZone;
use serde_json::Value;

use self::picture::{UNLIMITED, View, render};
use super::status::Status;
use crate::control::Socket;
use crate::output::{self, Output, tame_value};

/// How often the server is asked, and how often the size of the terminal.
const EVERY: Duration = Duration::from_millis(500);
const SIZE_EVERY: Duration = Duration::from_millis(100);
/// How long a server may be away: one that is started again goes on with its
/// runs, and whoever watches need not.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// What a terminal has that does not say how large it is.
const SIZE_USUAL: (usize, usize) = (80, 24);

/// Shows a run once.
pub fn show(socket: &Socket, run: u64) -> Result<u8, String> {
    let answer = socket.get(&format!("/v1/drains/{run}"))?;
    let terminal = Terminal::of_stdout();
    let mut out = Output::painted();
    let shown = match socket.is_json() {
        true => writeln!(out, "{}", output::json(&answer)),
        false => {
            let status = read(&answer)?;
            let view = View { rows: None, ..terminal.view(&[]) };
            writeln!(out, "{}", render(&status, &view))
        }
    };
    shown.map_err(output::explain)?;
    Ok(0)
}

/// Shows a run until it is over, with what was said when it began; a line of
/// JSON for each change, if machines read it.
pub fn follow(socket: &Socket, run: u64, warnings: &[&str]) -> Result<u8, String> {
    let terminal = Terminal::of_stdout();
    let warnings: Vec<String> = warnings.iter().map(|&warning| warning.to_owned()).collect();
    // In a terminal they would be gone with the first picture.
    if !terminal.is_real || socket.is_json() {
        warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    }
    let (mut last, mut silent_since) = (None, None);
    let mut frames = Frames::default();
    loop {
        let answer = match socket.get(&format!("/v1/drains/{run}")) {
            Ok(answer) => answer,
            Err(why) => {
                let since: Instant = *silent_since.get_or_insert_with(Instant::now);
                if last.is_none() || since.elapsed() > SILENCE_MAX {
                    return Err(why);
                }
                std::thread::sleep(EVERY);
                continue;
            }
        };
        silent_since = None;
        let status = read(&answer)?;
        // What was measured changes all the time, and is no news.
        let changes = status.next_seq - status.samples.min(status.next_seq);
        let news = (changes, status.stands_still.clone(), status.elsewhere.clone());
        let is_news = last.as_ref() != Some(&news);
        last = Some(news);
        let mut out = Output::painted();
        let shown = match (socket.is_json(), terminal.is_real) {
            (true, _) if is_news => writeln!(out, "{}", output::json(&answer)),
            (false, true) => frames.draw(&mut out, &status, &terminal, &warnings),
            (false, false) if is_news => {
                writeln!(out, "{}\n", render(&status, &terminal.view(&[])))
            }
            _ => Ok(()),
        };
        shown.and_then(|()| out.flush()).map_err(output::explain)?;
        if let Some(outcome) = status.outcome {
            if terminal.is_real && !socket.is_json() {
                writeln!(out).map_err(output::explain)?;
            }
            let is_whole = outcome == drain::engine::RunOutcome::Completed;
            return Ok(if is_whole { 0 } else { crate::EXIT_FAILED });
        }
        let asked = Instant::now();
        while asked.elapsed() < EVERY {
            std::thread::sleep(SIZE_EVERY);
            // A terminal whose size changes is drawn anew at once.
            if terminal.is_real && !socket.is_json() && frames.is_outdated() {
                frames.draw(&mut out, &status, &terminal, &warnings).map_err(output::explain)?;
            }
        }
    }
}

/// What the server says, without anything that would speak to a terminal.
fn read(answer: &Value) -> Result<Status, String> {
    serde_json::from_value(tame_value(answer)).map_err(|error| {
        format!("the server's status is not understood: {error}; is it of another version?")
    })
}

/// What standard output is.
struct Terminal {
    is_real: bool,
    has_colours: bool,
    zone: TimeZone,
}

impl Terminal {
    fn of_stdout() -> Terminal {
        let is_real = std::io::stdout().is_terminal();
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let has_colours = is_real && !is_dumb && std::env::var_os("NO_COLOR").is_none();
        Terminal { is_real, has_colours, zone: TimeZone::system() }
    }

    /// What is shown there now: a picture that fits, or all there is.
    fn view<'a>(&'a self, warnings: &'a [String]) -> View<'a> {
        let (columns, rows) = match self.is_real {
            true => (size().0, Some(size().1)),
            false => (UNLIMITED, None),
        };
        let has_colours = self.has_colours;
        View { columns, rows, has_colours, zone: &self.zone, warnings }
    }
}

/// Columns and rows of the terminal.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            (usize::from(size.ws_col), usize::from(size.ws_row))
        }
        _ => SIZE_USUAL,
    }
}

/// Pictures, each drawn over the one before.
#[derive(Default)]
struct Frames {
    drawn: Option<(usize, usize)>,
}

impl Frames {
    fn is_outdated(&self) -> bool {
        self.drawn.is_some_and(|drawn| drawn != size())
    }

    /// Writes one picture, at once. All is cleared only where the size changed,
    /// since what was drawn before may have been wrapped.
    fn draw(
        &mut self,
        out: &mut Output,
        status: &Status,
        terminal: &Terminal,
        warnings: &[String],
    ) -> std::io::Result<()> {
        let mut view = terminal.view(warnings);
        let size = (view.columns, view.rows.unwrap_or_default());
        if status.outcome.is_some() {
            // The prompt comes below the last picture, and may have two lines.
            view.rows = view.rows.map(|rows| rows.saturating_sub(2));
        }
        let is_new = self.drawn.replace(size) != Some(size);
        let frame = frame(&render(status, &view), is_new);
        out.write_all(frame.as_bytes())?;
        out.flush()
    }
}

/// A picture as it is sent to a terminal: each line is cleared just before it is
/// written, and the last one with all that is below, so nothing flickers. Behind
/// a line that fills the terminal a clear would take its last letter.
fn frame(picture: &str, is_new: bool) -> String {
    let mut frame = String::from(if is_new { "\x1b[2J\x1b[H" } else { "\x1b[H" });
    let mut lines = picture.split('\n').peekable();
    while let Some(line) = lines.next() {
        let (clear, end) = if lines.peek().is_some() { ("\x1b[K", "\n") } else { ("\x1b[J", "") };
        frame.extend([clear, line, end]);
    }
    frame
}
