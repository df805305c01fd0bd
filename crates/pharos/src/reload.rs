//! Reloads that were asked for, by signal or through the control socket: one
//! at a time, and never more of them waiting than would do something.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedMutexGuard, Semaphore, watch};

use crate::load::Summary;
use crate::serve::{Report, Server};

/// Reloads of single zones that wait or run at once.
const SINGLE_MAX: usize = 32;

type Outcome = Result<Report, String>;
/// Where the outcome of a reload will be seen by all who wait for it.
type Awaited = watch::Receiver<Option<Outcome>>;

/// Why there is no report.
#[derive(Debug)]
pub enum Failure {
    /// Nothing was changed, and why.
    NotReloaded(String),
    /// Too many wait already.
    Busy(String),
}

/// Who reloads now, and who is next.
#[derive(Debug)]
pub struct Reloads {
    /// Held by the one that runs. Waiting for it takes no thread.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The reload of everything that has not begun yet. Who asks meanwhile
    /// gets its outcome: it will see everything that is on disk by now.
    next_whole: Mutex<Option<Awaited>>,
    single: Semaphore,
}

impl Default for Reloads {
    fn default() -> Self {
        Reloads {
            turn: Arc::default(),
            next_whole: Mutex::default(),
            single: Semaphore::new(SINGLE_MAX),
        }
    }
}

/// Reloads everything, or `zones` alone, and returns what that did.
pub async fn reload(server: &Arc<Server>, zones: Vec<String>) -> Result<Report, Failure> {
    let outcome = match zones.is_empty() {
        true => whole(server).await,
        false => {
            let _place = server.reloads.single.try_acquire().map_err(|_| {
                Failure::Busy(format!(
                    "{SINGLE_MAX} reloads of single zones wait already; nothing was changed: try \
                     again, or reload everything at once"
                ))
            })?;
            let turn = server.reloads.turn.clone().lock_owned().await;
            run(server.clone(), zones, turn).await
        }
    };
    outcome.map_err(Failure::NotReloaded)
}

/// Waits for a reload of everything that begins after this was called.
async fn whole(server: &Arc<Server>) -> Outcome {
    let mut awaited = ask_whole(server);
    let outcome = awaited.wait_for(Option::is_some).await.ok().and_then(|seen| seen.clone());
    outcome.unwrap_or_else(|| Err("the reload did not finish".into()))
}

/// Asks for a reload of everything without waiting for it.
pub fn ask_whole(server: &Arc<Server>) -> Awaited {
    let mut next = server.reloads.next_whole.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(awaited) = &*next {
        return awaited.clone();
    }
    let (sender, awaited) = watch::channel(None);
    *next = Some(awaited.clone());
    let server = server.clone();
    tokio::spawn(async move {
        let turn = server.reloads.turn.clone().lock_owned().await;
        // From here on files may have been looked at: who asks now needs
        // another one.
        server.reloads.next_whole.lock().unwrap_or_else(PoisonError::into_inner).take();
        let outcome = run(server, Vec::new(), turn).await;
        sender.send_replace(Some(outcome));
    });
    awaited
}

/// Reloads on a thread that may wait. It keeps its turn even if nobody waits
/// for the outcome any more.
async fn run(server: Arc<Server>, zones: Vec<String>, turn: OwnedMutexGuard<()>) -> Outcome {
    let work = move || {
        let outcome = reload_now(&server, &zones);
        drop(turn);
        outcome
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err("the reload did not finish; this is a bug".into()))
}

/// Reloads and says in the log how it went.
fn reload_now(server: &Server, zones: &[String]) -> Outcome {
    server.reread_cookies();
    let outcome = server.load(zones);
    match &outcome {
        Ok(report) => {
            let Summary { read, updated, removed, bad, kept, .. } = report.summary;
            tracing::info!(read, updated, removed, bad, kept, millis = report.millis, "reloaded");
        }
        Err(error) => tracing::error!("not reloaded, everything is served as before: {error}"),
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Flags};

    fn server(home: &tempfile::TempDir) -> Arc<Server> {
        let flags = Flags { zones: Some(home.path().into()), ..Flags::default() };
        Server::new(&config::read(None, &flags).unwrap(), None).unwrap()
    }

    #[tokio::test]
    async fn many_requests_for_everything_are_one_reload() {
        let home = tempfile::tempdir().unwrap();
        let server = server(&home);
        // Somebody reloads while the others ask.
        let turn = server.reloads.turn.clone().lock_owned().await;
        let asked: Vec<Awaited> = (0..1000).map(|_| ask_whole(&server)).collect();
        drop(turn);
        for mut awaited in asked {
            let outcome = awaited.wait_for(Option::is_some).await.unwrap().clone();
            assert!(outcome.unwrap().is_ok());
        }
        assert_eq!(server.loads().succeeded, 1);
        reload(&server, vec![]).await.unwrap();
        assert_eq!(server.loads().succeeded, 2, "who asks after the start gets another one");
    }

    #[tokio::test]
    async fn single_zones_do_not_queue_without_bound() {
        let home = tempfile::tempdir().unwrap();
        let server = server(&home);
        let turn = server.reloads.turn.clone().lock_owned().await;
        let waiting: Vec<_> = (0..SINGLE_MAX)
            .map(|_| {
                let server = server.clone();
                tokio::spawn(async move { reload(&server, vec!["a.test".into()]).await })
            })
            .collect();
        while server.reloads.single.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let refused = reload(&server, vec!["a.test".into()]).await;
        assert!(matches!(refused, Err(Failure::Busy(_))), "{refused:?}");
        drop(turn);
        for one in waiting {
            let outcome = one.await.unwrap();
            assert!(matches!(outcome, Err(Failure::NotReloaded(_))), "{outcome:?}");
        }
    }
}
