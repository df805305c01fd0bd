//! A server on a thread of its own, which can be stopped and killed as a
//! process can.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::super::*;
use super::{PATIENCE, POLL};

/// A server that was started and not killed.
pub struct Server {
    pub drains: Arc<Drains>,
    runtime: Handle,
    kill: oneshot::Sender<()>,
    thread: JoinHandle<()>,
    home: PathBuf,
}

impl Server {
    pub async fn start(
        config: DrainConfig,
        home: &Path,
        mutation: Option<Mutation>,
    ) -> Result<Server, String> {
        let (tell, started) = oneshot::channel();
        let (kill, killed) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            mutation.into_iter().for_each(Mutation::plant);
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Drains::start(config).await;
                // Whoever starts it waits for this.
                let _ = tell.send(server.map(|drains| (drains, Handle::current())));
                let _ = killed.await;
            });
        });
        let (drains, runtime) = started.await.expect("a server says whether it started")?;
        Ok(Server { drains, runtime, kill, thread, home: home.to_owned() })
    }

    /// Has something done on the server's thread. `None` if it was stopped
    /// before it answered: then it is done when the server continues.
    pub async fn call<F>(&self, work: impl FnOnce(Arc<Drains>) -> F) -> Option<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let mut answer = self.runtime.spawn(work(self.drains.clone()));
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match timeout(POLL, &mut answer).await {
                Ok(answer) => return Some(answer.expect("no call panics")),
                Err(_) if self.is_stopped() => return None,
                Err(_) => {}
            }
        }
        panic!("a server that runs does not answer");
    }

    /// Stops it at its next effect.
    pub fn stop_before_effect(&self) {
        self.drains.world.faults.gate.arm();
    }

    /// Stops it where it is.
    pub async fn stop_now(&self) {
        let world = self.drains.world.clone();
        world.faults.gate.arm();
        self.runtime.spawn(async move { world.faults.stop(&world.store).await });
        until(async || self.is_stopped()).await;
        is_quiet(&self.home).await;
    }

    pub fn is_stopped(&self) -> bool {
        self.drains.world.faults.gate.is_stopped()
    }

    pub fn is_to_stop(&self) -> bool {
        self.drains.world.faults.gate.is_armed()
    }

    /// Lets it continue, or not be stopped.
    pub fn go_on(&self) {
        self.drains.world.faults.gate.open();
    }

    pub fn panics_next(&self) {
        self.drains.world.faults.panics.store(1, Ordering::Relaxed);
    }

    /// Whether it has still to panic.
    pub fn is_to_panic(&self) -> bool {
        self.drains.world.faults.panics.load(Ordering::Relaxed) > 0
    }

    /// Calls the panic off; whether it was too late for that.
    pub fn call_panic_off(&self) -> bool {
        self.drains.world.faults.panics.swap(0, Ordering::Relaxed) == 0
    }

    pub fn holder(&self) -> &str {
        self.drains.instance.holder()
    }

    /// Ends it as SIGKILL does: nothing is given back but what the kernel gives
    /// back.
    pub async fn kill(self) {
        let Server { drains, kill, thread, home, .. } = self;
        drains.world.faults.gate.kill();
        drop(kill);
        drop(drains);
        until(async || thread.is_finished()).await;
        thread.join().expect("no server panics");
        is_quiet(&home).await;
    }
}

/// Waits until no command writes any more that a driver has begun: those of a
/// process that is stopped or killed end by themselves, and soon. What may still
/// come later, targets have fences against.
pub async fn is_quiet(home: &Path) {
    let home = home.to_str().expect("a folder with a name in UTF-8").as_bytes();
    let writes = |pid: std::fs::DirEntry| {
        let command = std::fs::read(pid.path().join("cmdline")).unwrap_or_default();
        command.starts_with(b"sh\0-c\0") && command.windows(home.len()).any(|own| own == home)
    };
    until(async || !std::fs::read_dir("/proc").unwrap().flatten().any(writes)).await;
}
