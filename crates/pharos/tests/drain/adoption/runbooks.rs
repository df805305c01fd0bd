//! The runbooks of the three services, and of the evacuation of each datacenter.

/// Errors are those of every server: what no server gets is no error of one. The
/// window of the rate, a scrape and some time for the machine fit into `wait`.
pub const WEB: &str = r#"
pharos: service/v1
service: web
traffic: stateless
user_facing: true
load: {dc1: 3, dc2: 3, dc3: 3}
# A unit of load is 20 requests per second.
measured_load: sum(rate(haproxy_server_http_responses_total{proxy="web", server="$dc"}[4s])) / 20
health:
  errors:
    query: >
      sum by (server) (rate(haproxy_server_http_responses_total{proxy="web", code="5xx"}[2s]))
      / sum by (server) (rate(haproxy_server_http_responses_total{proxy="web"}[2s]))
    below: 0.05
    no_data: block
    no_traffic: pass_on_restore
    max_age: 5s
drain:
  shift:
    template: TrafficShift
    with: {knob: "edge:weight/web/$dc", to: 0%}
    pace: {first: 25%, step_max: 50%, wait: 3s, wait_max: 6s}
restore:
  shift:
    template: TrafficShift
    with: {knob: "edge:weight/web/$dc", to: original}
    pace: {first: 25%, step_max: 50%, wait: 3s, wait_max: 6s}
"#;

pub const CHAT: &str = r#"
pharos: service/v1
service: chat
traffic: sticky
user_facing: true
load: {dc1: 5, dc2: 5, dc3: 5}
health:
  refused:
    query: sum by (server) (rate(haproxy_server_connection_errors_total{proxy="chat"}[2s]))
    below: 1
    no_data: block
    max_age: 5s
drain:
  shift:
    template: SessionDrain
    with: {knob: "edge:weight/chat/$dc", sessions: "edge:sessions/chat/$dc", grace: 4s}
    pace: {first: 50%, step_max: 50%, wait: 3s, wait_max: 6s}
restore:
  shift:
    template: TrafficShift
    with: {knob: "edge:weight/chat/$dc", to: original}
    pace: {first: 50%, step_max: 50%, wait: 3s, wait_max: 6s}
"#;

/// Orders are in Redis: the primary is in dc1, its replica in dc2. One switch fences
/// both of them, so the promotion lifts it. The promotion interrupts replication, so
/// that is looked at before and after it, not meanwhile.
const ORDERS: &str = r#"
pharos: service/v1
service: orders
traffic: stateful
user_facing: false
health:
  replicates: {query: min(redis_replication_up), above: 0, no_data: block, max_age: 5s}
drain:
  promote:
    template: Promote
    with:
      knob: redis:primary
      to: dc2
      from: dc1
      nearly_caught_up: &near
        name: near-enough
        query: max(redis_replication_lag_bytes)
        at_most: NEAR
        no_data: block
        max_age: 5s
      fence: redis:writes
      fence_to: fenced
      caught_up: &nothing_missing
        name: nothing-missing
        query: max(redis_replication_lag_bytes)
        at_most: 0
        no_data: block
        max_age: 5s
      unfence_to: open
      back_fence: redis:writes
      back_caught_up: *nothing_missing
      settled: replicates
    pre: [replicates]
    health: []
restore:
  promote:
    template: Promote
    with:
      knob: redis:primary
      to: original
      from: dc2
      nearly_caught_up: *near
      fence: redis:writes
      fence_to: fenced
      caught_up: *nothing_missing
      unfence_to: open
      back_fence: redis:writes
      back_caught_up: *nothing_missing
      settled: replicates
    pre: [replicates]
    health: []
"#;

/// Redis, with how many bytes the replica may be behind when the fence is set.
pub fn orders(near: u32) -> String {
    ORDERS.replace("NEAR", &near.to_string())
}

/// The same, with an operator who has to agree before the drain is over.
pub fn orders_confirmed(near: u32) -> String {
    let confirm = "drain:\n  confirm:\n    template: Approval\n    \
                   with: {question: \"Are the orders fine in dc2?\"}\n    after: [promote]\n";
    orders(near).replace("drain:\n", confirm)
}

/// The way back of the primary when dc2 leaves: another service of another
/// evacuation, with the same primary and the same fence.
pub fn orders_of_dc2(near: u32) -> String {
    orders(near)
        .replace("service: orders\n", "service: orders-of-dc2\n")
        .replace("to: dc2", "to: dc1")
        .replace("from: dc1", "from: DC2")
        .replace("from: dc2", "from: dc1")
        .replace("from: DC2", "from: dc2")
}

/// The evacuation of a datacenter. A rate over 2 s of scrapes every 500 ms says
/// something about a step 2.5 s after it; tasks wait for 3 s.
pub fn evacuation(datacenter: &str, services: &str) -> String {
    format!(
        "pharos: evacuation/v1\ndatacenter: {datacenter}\ndatacenters:\n  dc1: {{capacity: 100}}\n  \
         dc2: {{capacity: 100}}\n  dc3: {{capacity: 100}}\n\
         scrape_interval: 500ms\nlimits: {{serving_min: 1, drained_max: 70%}}\n\
         services: [{services}]\n"
    )
}
