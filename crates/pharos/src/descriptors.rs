//! Open files: as many as the bounds of a server add up to, if the system
//! gives them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::admin::CONNECTIONS_MAX;
use crate::config::Config;
use crate::node;

/// For files being read, the log, and what the runtime keeps open.
const RESERVE: u64 = 100;

/// Raises the limit of open files to what `config` may need.
pub fn provide(config: &Config) {
    let fleet = config.fleet.map_or(0, |fleet| fleet.pool.families().count());
    let sockets = (config.listen.len() + fleet) * (config.workers + 1);
    let cache = config.cache.as_ref().map_or(0, |cache| {
        let own = cache.listen.len() * (cache.workers + 1) + 2;
        // Clients' connections have a bound of their own there.
        config.tcp.connections_max + own + cache.workers * node::SOCKETS_PER_CELL
    });
    provide_for(config.tcp.connections_max + sockets + cache);
}

/// Raises the limit of open files to what so many sockets for DNS and the
/// admin server need, and says so when the system allows less: connections
/// would then be refused before their bounds are reached.
pub fn provide_for(sockets: usize) {
    // Admin HTTP and the control socket, each with its listener and a connection that waits.
    let http = 2 * (CONNECTIONS_MAX + 2);
    let needed = (sockets + http) as u64 + RESERVE;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return;
    }
    let wanted = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    let raised =
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
    let current = getrlimit(Resource::Nofile).current;
    match (raised, current) {
        (Ok(()), Some(current)) if current >= needed => {
            tracing::debug!("the limit of open files is now {current}");
        }
        (_, current) => tracing::warn!(
            "up to {needed} open files may be needed, but the system allows {}; raise it (ulimit \
             -n, or LimitNOFILE= of systemd), or lower tcp.connections_max",
            current.unwrap_or_default()
        ),
    }
}
