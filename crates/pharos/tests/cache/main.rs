//! The cache as its users run it: real processes, a real ZooKeeper, and an
//! upstream server that does what it should not.
//!
//! `answers` and `owners` hold what an earlier cache of this kind got wrong,
//! each as a test that shows it absent.

#[path = "../common/mod.rs"]
mod common;

mod answers;
mod coordination;
mod front;
mod hostile;
mod nodes;
mod operator;
mod owners;
mod reply;
mod upstream;
mod zookeeper;
