//! Ctrl-C and SIGTERM end a run through its guards, so that no server is left behind.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// From now on a signal makes [`check`] fail instead of ending the process.
pub fn install() -> Result<()> {
    ctrlc::set_handler(|| REQUESTED.store(true, Ordering::Relaxed))
        .context("cannot install the Ctrl-C handler")
}

/// Fails once the user asked to stop. Every long loop calls it.
pub fn check() -> Result<()> {
    if REQUESTED.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}
