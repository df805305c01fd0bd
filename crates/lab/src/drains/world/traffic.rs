//! Where requests and sessions are, and what they cost there.

use drain::{Millis, Time};

use super::World;
use super::site::Service;

/// How long it takes to set a session up.
const SETUP_SECS: f64 = 10.0;
/// Requests of a session a second.
pub const SESSION_REQUESTS: f64 = 1.0 / 60.0;

/// One service in one datacenter.
#[derive(Clone, Debug)]
pub struct Flow {
    pub weight: Ramp,
    pub is_running: bool,
    /// Requests a second; for sticky services, sessions.
    pub traffic: f64,
    /// The traffic that its caches are warm for.
    pub warm: f64,
    /// Sessions that are being set up.
    pub setting_up: f64,
    /// The share of its sessions that may stay, of how many.
    pub allowance: f64,
    pub allowance_of: f64,
    /// The share of its requests that fail.
    pub errors: f64,
}

/// Something that is on its way from one value to another.
#[derive(Clone, Copy, Debug)]
pub struct Ramp {
    from: f64,
    pub to: f64,
    begins: Time,
    takes: Millis,
}

impl Ramp {
    fn at_rest(value: f64, now: Time) -> Self {
        Ramp { from: value, to: value, begins: now, takes: Millis::ZERO }
    }

    pub fn at(&self, now: Time) -> f64 {
        let passed = (now - self.begins).as_secs_f64();
        let share =
            if self.takes == Millis::ZERO { 1.0 } else { passed / self.takes.as_secs_f64() };
        self.from + (self.to - self.from) * share.clamp(0.0, 1.0)
    }

    pub fn go(&mut self, now: Time, to: f64, takes: Millis) {
        *self = Ramp { from: self.at(now), to, begins: now, takes };
    }

    pub fn finish(&mut self) {
        self.from = self.to;
    }
}

impl Flow {
    pub fn all(service: &Service, now: Time) -> Vec<Flow> {
        let sum: f64 = service.weights.iter().sum();
        let sessions = service.sessions.map_or(0.0, |sessions| sessions.count);
        let flow = |weight: &f64| {
            let share = if sum > 0.0 { weight / sum } else { 0.0 };
            Flow {
                weight: Ramp::at_rest(*weight, now),
                is_running: true,
                traffic: sessions * share,
                warm: 0.0,
                setting_up: 0.0,
                allowance: 1.0,
                allowance_of: 0.0,
                errors: 0.0,
            }
        };
        service.weights.iter().map(flow).collect()
    }

    /// The share of its traffic that caches do not know.
    pub fn cold(&self) -> f64 {
        if self.traffic > 0.0 { ((self.traffic - self.warm) / self.traffic).max(0.0) } else { 0.0 }
    }

    pub fn load(&self, service: &Service) -> f64 {
        let colder = service.cache.map_or(0.0, |cache| (cache.cold_cost - 1.0) * self.cold());
        match service.sessions {
            Some(sessions) => {
                let settled = (self.traffic - self.setting_up).max(0.0);
                settled * sessions.cost * (1.0 + colder) + self.setting_up * sessions.setup_cost
            }
            None => self.traffic * service.cost * (1.0 + colder),
        }
    }
}

impl World {
    /// The weight that is felt now.
    fn felt(&self, service: usize, place: usize) -> f64 {
        let flow = &self.flows[service][place];
        if flow.is_running { flow.weight.at(self.now) } else { 0.0 }
    }

    /// The share of what it usually can do that a service can do here.
    pub(super) fn available(&self, service: usize, place: usize) -> f64 {
        let usual = self.site.services[service].weights[place];
        if usual > 0.0 { self.felt(service, place) / usual } else { 1.0 }
    }

    /// What the weight of a service is told to be here, as a share of the usual.
    pub fn multiplier(&self, service: usize, place: usize) -> f64 {
        let usual = self.site.services[service].weights[place];
        if usual > 0.0 { self.flows[service][place].weight.to / usual } else { 1.0 }
    }

    /// The share of its sessions that may stay here.
    pub fn staying(&self, service: usize, place: usize) -> f64 {
        self.flows[service][place].allowance
    }

    /// The traffic of a service here, as a share of the usual.
    pub(super) fn needed(&self, service: usize, place: usize) -> f64 {
        let own = &self.site.services[service];
        let sum: f64 = own.weights.iter().sum();
        let all = own.sessions.map_or(own.demand, |sessions| sessions.count);
        let usual = all * own.weights[place] / sum;
        if usual > 0.0 { self.flows[service][place].traffic / usual } else { 0.0 }
    }

    pub(super) fn spread_traffic(&mut self, secs: f64) {
        for service in 0..self.site.services.len() {
            match self.site.services[service].sessions {
                Some(_) => self.spread_sessions(service, secs),
                None => self.spread_requests(service),
            }
        }
    }

    fn spread_requests(&mut self, service: usize) {
        let felt: Vec<f64> =
            (0..self.site.datacenters.len()).map(|place| self.felt(service, place)).collect();
        let (sum, demand) = (felt.iter().sum::<f64>(), self.site.services[service].demand);
        for (flow, felt) in self.flows[service].iter_mut().zip(felt) {
            flow.traffic = if sum > 0.0 { demand * felt / sum } else { 0.0 };
        }
        self.homeless[service] = if sum > 0.0 { 0.0 } else { demand };
    }

    /// Sessions end by themselves, or because somebody ends them; all of them
    /// come back where weights lead them.
    fn spread_sessions(&mut self, service: usize, secs: f64) {
        let Some(sessions) = self.site.services[service].sessions else { return };
        let ends = 1.0 - 0.5f64.powf(secs / sessions.half_life.as_secs_f64());
        let mut arriving = self.homeless[service];
        for place in 0..self.site.datacenters.len() {
            let is_running = self.flows[service][place].is_running;
            let flow = &mut self.flows[service][place];
            let stays = if is_running { flow.traffic * (1.0 - ends) } else { 0.0 };
            let stays = match flow.allowance < 1.0 {
                true => stays.min(flow.allowance * flow.allowance_of),
                false => stays,
            };
            arriving += flow.traffic - stays;
            flow.traffic = stays;
            flow.setting_up -= flow.setting_up * (secs / SETUP_SECS).min(1.0);
        }
        let felt: Vec<f64> =
            (0..self.site.datacenters.len()).map(|place| self.felt(service, place)).collect();
        let sum: f64 = felt.iter().sum();
        self.homeless[service] = if sum > 0.0 { 0.0 } else { arriving };
        for (flow, felt) in self.flows[service].iter_mut().zip(felt) {
            let come = if sum > 0.0 { arriving * felt / sum } else { 0.0 };
            flow.traffic += come;
            flow.setting_up = (flow.setting_up + come).min(flow.traffic);
        }
    }

    pub(super) fn warm_caches(&mut self, secs: f64) {
        for (service, flows) in self.site.services.iter().zip(&mut self.flows) {
            let Some(cache) = service.cache else { continue };
            for flow in flows {
                let takes = if flow.traffic > flow.warm { cache.warms_in } else { cache.cools_in };
                let share = (secs / takes.as_secs_f64().max(1.0)).min(1.0);
                flow.warm += (flow.traffic - flow.warm) * share;
            }
        }
    }
}
