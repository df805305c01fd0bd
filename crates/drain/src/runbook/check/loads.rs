//! Loads: whether what measures them can tell datacenters apart.

use super::super::problem::Problems;
use super::super::spec::Service;
use super::super::words::{self, Piece};

pub(super) fn check(service: &Service, problems: &mut Problems) {
    let Some(query) = &service.measured_load else { return };
    let of_one = |(_, _, piece): &(usize, usize, Piece<'_>)| *piece == Piece::Variable("dc");
    if !words::pieces(&query.value).iter().any(of_one) {
        problems.error(
            query.at,
            "`measured_load` is the same for every datacenter: it does not contain `$dc`",
            "accepted: a query with `$dc`, such as `sum(rate(requests_total{dc=\"$dc\"}[1m]))`",
        );
    }
    if service.load.is_empty() {
        problems.warning(
            query.at,
            "without `load` a datacenter that serves nothing now is taken to draw as much as any",
            "add `load:` with what each datacenter usually serves",
        );
    }
}
