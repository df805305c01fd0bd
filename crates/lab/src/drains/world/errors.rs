//! Which requests fail, and why: too much load, somebody who is called and is
//! not there, a replica that is too old, a link that is full.

use super::World;
use super::traffic::SESSION_REQUESTS;

/// From here on some requests take too long.
const STRAINED: f64 = 0.95;
/// The share of requests that have failed when a datacenter is just full.
const FAILED_WHEN_FULL: f64 = 0.002;
/// Services can do so many times what they usually do: others may be drained.
const ROOM: f64 = 2.0;

/// The share of requests that fail at a utilisation.
fn overload(utilisation: f64) -> f64 {
    match utilisation {
        _ if utilisation <= STRAINED => 0.0,
        _ if utilisation <= 1.0 => FAILED_WHEN_FULL * (utilisation - STRAINED) / (1.0 - STRAINED),
        _ => FAILED_WHEN_FULL.max(1.0 - 1.0 / utilisation),
    }
}

impl World {
    pub(super) fn judge_requests(&mut self) {
        for service in 0..self.site.services.len() {
            for place in 0..self.site.datacenters.len() {
                let errors = match self.flows[service][place].traffic > 0.0 {
                    true => 1.0 - self.succeed(service, place),
                    false => 0.0,
                };
                self.flows[service][place].errors = errors;
            }
        }
    }

    /// The share of requests that nothing makes fail.
    fn succeed(&self, service: usize, place: usize) -> f64 {
        let own = &self.site.services[service];
        let of_load = 1.0 - overload(self.utilisation(place));
        let called = own.calls.iter().map(|callee| 1.0 - self.missing(service, *callee, place));
        let read = own.reads.iter().map(|store| 1.0 - self.unread(*store, place));
        let links = own.uses.iter().map(|(link, _)| self.links[*link].through);
        called.chain(read).chain(links).fold(of_load, |all, share| all * share)
    }

    /// The share of calls that find nobody here.
    fn missing(&self, caller: usize, callee: usize, place: usize) -> f64 {
        let (available, needed) = (self.available(callee, place), self.needed(caller, place));
        let able = available * ROOM;
        if needed <= able + 0.001 { 0.0 } else { 1.0 - able / needed }
    }

    /// The share of reads that a store cannot answer here.
    fn unread(&self, store: usize, place: usize) -> f64 {
        let own = &self.site.stores[store];
        // Shards whose primary nobody follows.
        let lost: f64 = self.replicas[store]
            .iter()
            .flatten()
            .filter(|replica| !replica.is_on)
            .map(|replica| replica.primaries)
            .sum();
        let is_old = self.replicas[store][place]
            .as_ref()
            .is_some_and(|replica| replica.lag_secs(own) > own.stale_after.as_secs_f64());
        if is_old { 1.0 } else { lost.min(1.0) }
    }

    /// Requests of a service a second, and how many of them fail.
    pub(super) fn requests(&self, service: usize) -> (f64, f64) {
        let homeless = self.requests_nowhere(service);
        (0..self.flows[service].len()).fold((homeless, homeless), |(all, failed), place| {
            let (requests, of_them) = self.requests_at(service, place);
            (all + requests, failed + of_them)
        })
    }

    /// The same in one datacenter.
    pub(super) fn requests_at(&self, service: usize, place: usize) -> (f64, f64) {
        let flow = &self.flows[service][place];
        let requests = flow.traffic * self.requests_each(service);
        (requests, requests * flow.errors)
    }

    /// Requests a second that no datacenter takes: all of them fail.
    pub(super) fn requests_nowhere(&self, service: usize) -> f64 {
        self.homeless[service] * self.requests_each(service)
    }

    /// Of a unit of traffic: of a request, or of a session.
    fn requests_each(&self, service: usize) -> f64 {
        let is_sticky = self.site.services[service].sessions.is_some();
        if is_sticky { SESSION_REQUESTS } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_begin_before_a_datacenter_is_full_and_grow_beyond() {
        assert_eq!(overload(0.9), 0.0);
        assert!(overload(0.99) > 0.0 && overload(0.99) < overload(1.0));
        assert!(overload(2.0) == 0.5);
    }
}
