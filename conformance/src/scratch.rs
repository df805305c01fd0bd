//! A place for zones, configurations and logs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};

/// A directory that goes when the run ends, unless it is to be kept.
#[derive(Debug)]
pub struct Scratch {
    pub dir: PathBuf,
    keep: bool,
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

impl Scratch {
    pub fn new(keep: Option<&Path>) -> Result<Scratch> {
        let dir = match keep {
            Some(dir) => dir.to_owned(),
            // Tests of one process run side by side.
            None => {
                let number = NEXT.fetch_add(1, Ordering::Relaxed);
                let name = format!("conformance-{}-{number}", std::process::id());
                std::env::temp_dir().join(name)
            }
        };
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        let dir = dir.canonicalize()?;
        Ok(Scratch { dir, keep: keep.is_some() })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}
