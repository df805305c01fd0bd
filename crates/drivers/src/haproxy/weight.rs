//! Weights, as shares of what the configuration says.

use drain::Value;

use super::Haproxy;
use super::answer::{Server, WEIGHT_MAX};
use super::knob::KnobName;
use crate::driver::Accepts;
use crate::error::{Error, Result};

impl Haproxy {
    /// The share that was written last, as long as no server has more, as near as its weight
    /// allows, and not all have less; otherwise the largest that one has.
    pub(super) async fn read_weight(&self, text: &str, knob: &KnobName) -> Result<f64> {
        let servers = self.servers(knob).await?;
        let written = self.memory().weights.get(text).copied();
        read(&servers, written)
            .ok_or_else(|| Error::Refused(format!("{text}: {}", no_weight(&servers))))
    }

    pub(super) async fn write_weight(&self, text: &str, knob: &KnobName, share: f64) -> Result<()> {
        let servers = self.servers(knob).await?;
        if share > 0.0 && servers.iter().all(|server| server.initial == 0) {
            return Err(Error::Refused(format!("{text}: {}", no_weight(&servers))));
        }
        if let Some(server) = servers.iter().find(|server| exceeds(server, share)) {
            let max = f64::from(WEIGHT_MAX) / f64::from(server.initial);
            return Err(Error::Refused(format!(
                "{text}: {share} of the weight {} of server {:?} is more than {WEIGHT_MAX}; \
                 accepted: 0 to {max}",
                server.initial, server.name
            )));
        }
        if let Some(server) = servers.iter().find(|server| is_too_coarse(server, share)) {
            return Err(Error::Refused(format!(
                "{text}: the weight {} of server {:?} in HAProxy's configuration cannot be \
                 divided so that it stands near {share}; give it one such as 100 there (and the \
                 others in proportion), or move it at one go",
                server.initial, server.name
            )));
        }
        // One that is configured with 0 and was raised since gives its traffic up, too.
        for server in servers.iter().filter(|server| server.initial > 0 || share == 0.0) {
            let wanted = nearest(server.initial, share);
            if server.weight == wanted {
                continue;
            }
            let (backend, name) = (&knob.backend, &server.name);
            self.command(&format!("set weight {backend}/{name} {wanted}")).await?;
        }
        self.memory().weights.insert(text.to_owned(), share);
        Ok(())
    }
}

fn no_weight(servers: &[Server]) -> String {
    let name = servers.first().map_or("", |server| server.name.as_str());
    format!(
        "server {name:?} has the weight 0 in HAProxy's configuration, and there are no shares of \
         nothing; give it a weight there"
    )
}

/// How far from the share that was asked for a server may stand. HAProxy gives
/// servers the weight 1 by default, of which there is all or nothing: a run that
/// means to move a tenth would move everything with one of its steps.
const OFF_MAX: f64 = 0.1;
/// The same for a share that is so small that it would be nothing, and is made
/// the least there is instead. More than that is a jump: the first twentieth
/// that is given back to a server of weight 1 would be all of it.
const OFF_LEAST_MAX: f64 = 0.2;

fn is_too_coarse(server: &Server, share: f64) -> bool {
    let initial = f64::from(server.initial);
    if initial == 0.0 {
        return false;
    }
    let is_raised = share > 0.0 && (share * initial).round() == 0.0;
    let off_max = if is_raised { OFF_LEAST_MAX } else { OFF_MAX };
    let weight = f64::from(nearest(server.initial, share));
    (weight / initial - share).abs() > off_max + 1e-9
}

fn exceeds(server: &Server, share: f64) -> bool {
    share * f64::from(server.initial) > f64::from(WEIGHT_MAX) + 0.5
}

/// The weight that is nearest to a share of the configured one. Only a share of
/// nothing is nothing: the last server of a datacenter must not lose its traffic
/// before the last step.
fn nearest(initial: u32, share: f64) -> u32 {
    let exact = share * f64::from(initial);
    match exact.round() as u32 {
        0 if share > 0.0 => 1,
        weight => weight.min(WEIGHT_MAX),
    }
}

/// The share that servers stand at; `None` if they have none.
fn read(servers: &[Server], written: Option<f64>) -> Option<f64> {
    let weighted = || servers.iter().filter(|server| server.initial > 0);
    let own = |server: &Server| f64::from(server.weight) / f64::from(server.initial);
    if weighted().next().is_none() {
        return servers.iter().all(|server| server.weight == 0).then_some(0.0);
    }
    let raised = servers.iter().any(|server| server.initial == 0 && server.weight > 0);
    if raised && weighted().all(|server| server.weight == 0) {
        // It carries traffic.
        return Some(1.0);
    }
    if let Some(written) = written {
        let is_off = |server: &&Server| server.weight != nearest(server.initial, written);
        let most = weighted().filter(is_off).map(own).max_by(f64::total_cmp);
        let are_all_off = weighted().all(|server| is_off(&server));
        return Some(match most {
            // One that has more than was written has its traffic back. One that has less does not
            // say that the others gave theirs up.
            Some(share) if share > written || are_all_off => {
                // Not within the rounding of values, or nobody would notice.
                let is_same = Value::Number(written).is_met_by(&Value::Number(share));
                if is_same { written } else { share }
            }
            _ => written,
        });
    }
    let (now, configured) = weighted().fold((0, 0), |(now, configured), server| {
        (now + server.weight, configured + server.initial)
    });
    Some(f64::from(now) / f64::from(configured))
}

pub(super) fn accepts(servers: &[Server]) -> Accepts {
    let weights = servers.iter().map(|server| server.initial).filter(|weight| *weight > 0);
    match (weights.clone().min(), weights.max()) {
        (Some(least), Some(most)) => Accepts::Number {
            min: 0.0,
            max: f64::from(WEIGHT_MAX) / f64::from(most),
            step: 1.0 / f64::from(least),
        },
        _ => Accepts::Number { min: 0.0, max: 0.0, step: 0.0 },
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer::State;
    use super::*;
    use proptest::prelude::*;

    fn server(weight: u32, initial: u32) -> Server {
        Server { name: "a".into(), state: State::Ready, weight, initial, is_up: true }
    }

    #[test]
    fn shares_are_rounded_to_weights() {
        assert_eq!(nearest(100, 0.33), 33);
        assert_eq!(nearest(3, 0.5), 2);
        assert_eq!(nearest(3, 0.01), 1);
        assert_eq!(nearest(100, 0.0), 0);
        assert_eq!(nearest(256, 1.0), 256);
    }

    #[test]
    fn small_weights_cannot_be_divided() {
        assert!(!is_too_coarse(&server(1, 1), 0.0));
        assert!(!is_too_coarse(&server(1, 1), 1.0));
        assert!(is_too_coarse(&server(1, 1), 0.5));
        assert!(is_too_coarse(&server(3, 3), 0.5));
        // On the way back up: the least there is would be a third, or all.
        assert!(is_too_coarse(&server(0, 1), 0.05));
        assert!(is_too_coarse(&server(0, 3), 0.05));
        assert!(!is_too_coarse(&server(0, 0), 0.05));
        assert!((0..=100).all(|percent| !is_too_coarse(&server(5, 5), f64::from(percent) / 100.0)));
    }

    #[test]
    fn a_group_shows_who_is_off() {
        // As nobody wrote it, a group stands where its weights together do.
        assert_eq!(read(&[server(50, 100), server(100, 100)], None), Some(0.75));
        assert_eq!(read(&[server(50, 100), server(2, 3)], Some(0.5)), Some(0.5));
        // One was reset by a reload.
        assert_eq!(read(&[server(50, 100), server(100, 100)], Some(0.5)), Some(1.0));
        // One was taken out by hand: what the others serve counts.
        assert_eq!(read(&[server(0, 100), server(50, 100)], Some(0.5)), Some(0.5));
        assert_eq!(read(&[server(0, 100), server(20, 100)], Some(0.5)), Some(0.2));
        // A write that failed half-way: the group is not where that was to bring it.
        assert_eq!(read(&[server(0, 100), server(25, 100)], Some(0.25)), Some(0.25));
        // Off to both sides, in the mean where they should be.
        assert_ne!(read(&[server(0, 100), server(100, 100)], Some(0.5)), Some(0.5));
        assert_eq!(read(&[server(0, 0)], None), Some(0.0));
        assert_eq!(read(&[server(7, 0)], None), None);
        assert_eq!(read(&[server(7, 0), server(0, 8)], Some(0.0)), Some(1.0));
        assert_eq!(read(&[server(0, 0), server(0, 8)], Some(0.0)), Some(0.0));
        assert_eq!(read(&[server(0, 0), server(4, 8)], None), Some(0.5));
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_is_read(
            initials in prop::collection::vec(1u32..=256, 1..6),
            share in 0.0f64..=1.0,
        ) {
            let servers: Vec<_> =
                initials.iter().map(|initial| server(nearest(*initial, share), *initial)).collect();
            prop_assert_eq!(read(&servers, Some(share)), Some(share));
            let moved: Vec<_> = initials.iter().map(|initial| server(*initial, *initial)).collect();
            let found = Value::Number(read(&moved, Some(share)).unwrap());
            // A reload is noticed, unless the step was none.
            let is_noticed = !Value::Number(share).is_met_by(&found);
            prop_assert!(is_noticed || servers == moved || share > 0.99);
        }
    }
}
