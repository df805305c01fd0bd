//! Asked right before a driver changes something: may this process still?
//!
//! A write is several steps: a connection, a look, then the change itself. A
//! process that is stopped in between may have been taken for dead when it goes
//! on. So the question is not asked before the call but inside of it, right
//! before the change is sent.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::error::Result;

type Asking = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Says whether something may be changed; if not, why.
#[derive(Clone)]
pub struct Permit(Arc<dyn Fn() -> Asking + Send + Sync>);

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit")
    }
}

tokio::task_local! {
    static PERMIT: Permit;
}

impl Permit {
    pub fn new<F>(ask: impl Fn() -> F + Send + Sync + 'static) -> Permit
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        Permit(Arc::new(move || Box::pin(ask())))
    }

    /// Has every change within `call` ask first.
    pub async fn within<T>(self, call: impl Future<Output = T>) -> T {
        PERMIT.scope(self, call).await
    }
}

/// For drivers: to be awaited right before something is changed. Without a
/// permit around the call, everything may be.
pub async fn ask_permit() -> Result<()> {
    let Ok(permit) = PERMIT.try_with(Clone::clone) else { return Ok(()) };
    (permit.0)().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[tokio::test]
    async fn a_change_is_refused_by_the_permit_around_it_and_by_nothing_else() {
        ask_permit().await.unwrap();
        let may = Arc::new(AtomicBool::new(true));
        let permit = {
            let may = may.clone();
            Permit::new(move || {
                let may = may.load(Ordering::Relaxed);
                async move { if may { Ok(()) } else { Err(Error::Refused("not any more".to_owned())) } }
            })
        };
        permit
            .within(async {
                ask_permit().await.unwrap();
                may.store(false, Ordering::Relaxed);
                let refused = ask_permit().await.unwrap_err();
                assert!(matches!(&refused, Error::Refused(why) if why == "not any more"));
            })
            .await;
    }
}
