//! The runbooks of the three services, and of the evacuation of each datacenter.

/// Errors are those of every server: what no server gets is no error of one. The
/// window of the rate, a scrape and some time for the machine fit into `wait`.
pub const WEB: &str = r#"
pharos: service/v1
service: web
traffic: stateless
user_facing: true
load: {dc1: 10, dc2: 10, dc3: 10}
health:
  errors:
    query: >
      sum by (server) (rate(haproxy_server_http_responses_total{proxy="web", code="5xx"}[2s]))
      / sum by (server) (rate(haproxy_server_http_responses_total{proxy="web"}[2s]))
    below: 0.05
    no_data: block
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

/// Orders are in Redis: the primary is in dc1, its replica in dc2. `near` is how
/// many bytes the replica may be behind when the fence is set.
pub fn orders(near: u32) -> String {
    let promote = |to: &str| {
        format!(
            r#"
    template: Promote
    with:
      knob: redis:primary
      to: {to}
      caught_up:
        {{name: caught-up, query: max(redis_replication_lag_bytes), at_most: {near}, no_data: block}}
      fence: redis:writes
      fence_to: fenced
"#
        )
    };
    format!(
        "pharos: service/v1\nservice: orders\ntraffic: stateful\nuser_facing: false\n\
         health:\n  replicates: {{query: min(redis_replication_up), above: 0, no_data: block}}\n\
         drain:\n  promote:{}    health: []\n  open:\n    template: ConfigChange\n    \
         with: {{knob: \"redis:writes\", content: open}}\n    after: [promote]\n    health: []\n\
         restore:\n  promote:{}    health: []\n  open:\n    template: ConfigChange\n    \
         with: {{knob: \"redis:writes\", content: original}}\n    after: [promote]\n    health: []\n",
        promote("dc2"),
        promote("original")
    )
}

/// The same, with somebody who has to agree before the drain is over.
pub fn orders_confirmed(near: u32) -> String {
    let confirm = "drain:\n  confirm:\n    template: Approval\n    \
                   with: {question: \"Are the orders fine in dc2?\"}\n    after: [open]\n";
    orders(near).replace("drain:\n", confirm)
}

/// The evacuation of a datacenter.
pub fn evacuation(datacenter: &str, services: &str) -> String {
    format!(
        "pharos: evacuation/v1\ndatacenter: {datacenter}\ndatacenters:\n  dc1: {{capacity: 100}}\n  \
         dc2: {{capacity: 100}}\n  dc3: {{capacity: 100}}\n\
         limits: {{serving_min: 1, drained_max: 70%}}\nservices: [{services}]\n"
    )
}
