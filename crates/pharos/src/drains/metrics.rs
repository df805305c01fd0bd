//! Drains in `/metrics`: what an alarm at night needs to know.

use std::sync::atomic::Ordering;

use drain::engine::Phase;

use super::status::TaskStatus;
use super::{Drains, direction_name};
use crate::metrics::Page;

const NEEDS_PERSON: &str = "States of runs that wait for a person.";

/// A phase, as a status names it.
fn name(phase: Phase) -> String {
    serde_json::json!(phase).as_str().unwrap_or_default().to_owned()
}

/// Adds what there is to say about drains.
pub async fn write(drains: &Drains, page: &mut Page) {
    let statuses: Vec<_> = {
        let driven = drains.driven();
        driven.values().map(|handle| handle.status.borrow().clone()).collect()
    };
    page.head("pharos_drain_runs", "gauge", "Runs that this server drives.");
    page.line("pharos_drain_runs", &[], statuses.len());
    page.head("pharos_drain_panics_total", "counter", "Panics of tasks that drive runs.");
    page.line("pharos_drain_panics_total", &[], drains.panics.load(Ordering::Relaxed));
    page.head("pharos_drain_store_writable", "gauge", "Whether the store can be written: 1 or 0.");
    page.line("pharos_drain_store_writable", &[], u8::from(drains.unwritable().is_none()));
    let help = "Heads of the audit log that could not be sent to its sink at once.";
    page.head("pharos_drain_audit_sink_failures_total", "counter", help);
    let failures = drains.sink_failures.load(Ordering::Relaxed);
    page.line("pharos_drain_audit_sink_failures_total", &[], failures);
    let help = "Messages to people that could not be delivered.";
    page.head("pharos_drain_notify_failures_total", "counter", help);
    page.line("pharos_drain_notify_failures_total", &[], drains.world.channels.failures());
    let unreadable: Vec<_> = drains.unreadable().values().cloned().collect();
    let help = "Open runs that stand still since the store cannot be read or was changed.";
    page.head("pharos_drain_runs_unreadable", "gauge", help);
    page.line("pharos_drain_runs_unreadable", &[], unreadable.len());
    for own in &unreadable {
        page.head("pharos_drain_needs_person", "gauge", NEEDS_PERSON);
        let labels = [("datacenter", &own.datacenter[..]), ("direction", &own.direction[..])];
        page.line("pharos_drain_needs_person", &labels, 1);
    }
    for status in &statuses {
        let direction = direction_name(status.direction);
        let labels = [("datacenter", status.datacenter.as_str()), ("direction", direction)];
        page.head("pharos_drain_tasks", "gauge", "Tasks of runs that go on, by phase.");
        for phase in Phase::ALL {
            let tasks = status.tasks.iter().filter(|task| task.phase == phase).count();
            let labels = [labels[0], labels[1], ("phase", &name(phase))];
            page.line("pharos_drain_tasks", &labels, tasks);
        }
        page.head("pharos_drain_needs_person", "gauge", NEEDS_PERSON);
        page.line("pharos_drain_needs_person", &labels, status.needs_person.len());
        page.head("pharos_drain_tasks_held", "gauge", "Tasks that wait for something to be well.");
        let held = status.tasks.iter().filter(|task| task.hold.is_some()).count();
        page.line("pharos_drain_tasks_held", &labels, held);
        page.head("pharos_drain_tasks_stuck", "gauge", "Tasks that take longer than they should.");
        // Of what has ended it is history.
        let is_stuck = |task: &&TaskStatus| task.is_stuck && task.ended.is_none();
        let stuck = status.tasks.iter().filter(is_stuck).count();
        page.line("pharos_drain_tasks_stuck", &labels, stuck);
    }
    page.head("pharos_drain_share", "gauge", "How much of a datacenter is drained, 0 to 1.");
    // Without the store there is more to worry about than this line.
    for drained in drains.store().drained().await.unwrap_or_default() {
        // Between runs knobs are read; what a run last wrote is older.
        let share = drains.share_now(&drained.datacenter).unwrap_or(drained.share);
        page.line("pharos_drain_share", &[("datacenter", &drained.datacenter)], share);
    }
    page.head(
        "pharos_drain_knobs_strayed",
        "gauge",
        "Knobs of a drained datacenter that are not where its last run left them.",
    );
    for (datacenter, count, _) in drains.strayed_counts() {
        page.line("pharos_drain_knobs_strayed", &[("datacenter", &datacenter)], count);
    }
    let help = "Fences that a run left closed, or waits behind for long: writes are refused.";
    page.head("pharos_drain_fences_left_closed", "gauge", help);
    for (datacenter, count) in drains.fences_left_closed() {
        page.line("pharos_drain_fences_left_closed", &[("datacenter", &datacenter)], count);
    }
    page.head(
        "pharos_drain_knobs_contested",
        "gauge",
        "Knobs of a drained datacenter that are not put back any more: somebody keeps changing them.",
    );
    for (datacenter, _, contested) in drains.strayed_counts() {
        page.line("pharos_drain_knobs_contested", &[("datacenter", &datacenter)], contested);
    }
}
