//! Drains as their users run them: a real HAProxy before two datacenters, real
//! servers under real load, a real Prometheus, and a Pharos that is killed.

#[path = "../common/mod.rs"]
mod common;

mod adoption;
mod api;
mod commands;
mod evacuation;
mod identity;
mod load;
mod operator;
mod prometheus;
mod proxy;
mod server;
mod site;
mod takeover;
