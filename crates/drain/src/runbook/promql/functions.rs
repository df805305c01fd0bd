//! What PromQL calls its functions. Lists in one text each, which read better
//! than one name on a line.

/// What takes many series together.
pub(super) const AGGREGATIONS: &str = "\
    sum avg count min max group stddev stdvar topk bottomk count_values quantile limitk \
    limit_ratio";

/// Aggregations with an argument before what they aggregate.
pub(super) const WITH_ARGUMENT: &str = "\
    topk bottomk count_values quantile limitk limit_ratio";

/// Functions of samples over a span.
pub(super) const OF_RANGES: &str = "\
    rate irate increase delta idelta deriv predict_linear changes resets holt_winters \
    double_exponential_smoothing absent_over_time avg_over_time min_over_time max_over_time \
    sum_over_time count_over_time quantile_over_time stddev_over_time stdvar_over_time \
    last_over_time first_over_time present_over_time mad_over_time";

/// Functions of values at a moment.
pub(super) const OTHERS: &str = "\
    abs absent acos acosh asin asinh atan atanh ceil clamp clamp_max clamp_min cos cosh \
    day_of_month day_of_week day_of_year days_in_month deg exp floor histogram_avg \
    histogram_count histogram_fraction histogram_quantile histogram_stddev histogram_stdvar \
    histogram_sum hour info label_join label_replace ln log10 log2 minute month pi rad round \
    scalar sgn sin sinh sort sort_by_label sort_by_label_desc sort_desc sqrt tan tanh time \
    timestamp vector year";

/// Functions whose values are never below zero.
pub(super) const NEVER_NEGATIVE: &str = "\
    rate irate increase changes resets absent absent_over_time count_over_time \
    present_over_time stddev_over_time stdvar_over_time abs sqrt exp time timestamp \
    histogram_count pi";

/// Not below zero if what they are applied to is not.
pub(super) const KEEPS_SIGN: &str = "\
    sum_over_time avg_over_time min_over_time max_over_time last_over_time ceil floor round \
    sort sort_desc scalar vector label_replace label_join";

pub(super) fn has(list: &str, name: &str) -> bool {
    names(list).any(|other| other == name)
}

pub(super) fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split_ascii_whitespace()
}
