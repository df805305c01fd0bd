//! Tells people: what a `Notify` stage says, and every state of a run that waits
//! for a person. A channel is a command that gets the message; one that has no
//! command is a line in the log. That a message cannot be delivered is logged and
//! counted, and holds no run.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::text::one_line;
use serde::{Deserialize, Serialize};
use store::RunId;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::status::{NeedsPerson, Status};

/// How long a command may take.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(10);
/// Commands of one channel at once; more messages wait for their turn. What waits
/// for a person has turns of its own: it waits neither for another channel whose
/// commands hang, nor for what a run says on the same one.
const COMMANDS_MAX: usize = 4;

/// `[drain.notify.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Channel {
    /// The program and its arguments. The message is on its standard input, as
    /// one line of JSON.
    pub command: Vec<String>,
}

/// What a command gets.
#[derive(Clone, Debug, Serialize)]
pub struct Message {
    pub channel: String,
    pub run: u64,
    pub datacenter: String,
    pub text: String,
    /// Of a state that waits for a person: what it is about, why, and what helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<NeedsPerson>,
}

/// All channels of a server.
#[derive(Debug)]
pub struct Channels {
    known: BTreeMap<String, (Channel, Turns)>,
    /// Where states go that wait for a person.
    alert: Option<String>,
    failures: AtomicU64,
}

/// Turns to run the command of a channel.
#[derive(Debug)]
struct Turns {
    needs: Semaphore,
    others: Semaphore,
}

impl Channels {
    pub fn new(known: BTreeMap<String, Channel>, alert: Option<String>) -> Channels {
        let turns = || Semaphore::new(COMMANDS_MAX);
        let with_turns = |(name, own)| (name, (own, Turns { needs: turns(), others: turns() }));
        let known = known.into_iter().map(with_turns).collect();
        Channels { known, alert, failures: AtomicU64::new(0) }
    }

    /// Messages that could not be delivered.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Delivers a message, or says why that did not work.
    pub async fn deliver(&self, message: &Message) {
        let (run, channel) = (message.run, message.channel.as_str());
        tracing::info!(run, channel, "{}", message.text);
        let Some(known) = self.known.get(channel) else { return };
        if let Err(why) = run_command(known, message).await {
            self.failures.fetch_add(1, Ordering::Relaxed);
            tracing::error!(run, channel, "a message was not delivered: {why}: {}", message.text);
        }
    }

    /// Logs what waits for a person and was not told before, and what does not wait
    /// any more; returns the messages about it.
    pub fn compare(&self, run: RunId, told: &[NeedsPerson], after: &Status) -> Vec<Message> {
        let is_same = |one: &NeedsPerson, other: &NeedsPerson| {
            (one.kind, &one.task, &one.knob) == (other.kind, &other.task, &other.knob)
        };
        let lacks = |needs: &[NeedsPerson], own: &NeedsPerson| {
            !needs.iter().any(|other| is_same(own, other))
        };
        for own in told.iter().filter(|own| lacks(&after.needs_person, own)) {
            tracing::info!(%run, kind = ?own.kind, "{}: no longer waits for a person", object(own));
        }
        let mut messages = Vec::new();
        for own in after.needs_person.iter().filter(|own| lacks(told, own)) {
            messages.extend(self.alert(run, &after.datacenter, own));
        }
        messages
    }

    /// Logs what waits for a person; returns the message about it.
    pub fn alert(&self, run: RunId, datacenter: &str, own: &NeedsPerson) -> Option<Message> {
        let text = format!("{}: {}; {}", object(own), own.why, own.todo);
        let text = one_line(&text);
        tracing::warn!(%run, kind = ?own.kind, "waits for a person: {text}");
        self.alert.as_ref().map(|channel| Message {
            channel: channel.clone(),
            run: run.0,
            datacenter: datacenter.to_owned(),
            text: format!("run {run} of {datacenter}: {text}"),
            needs: Some(own.clone()),
        })
    }

    /// Delivers messages without anything waiting for that.
    pub fn send(self: &Arc<Self>, messages: Vec<Message>) {
        for message in messages {
            let channels = self.clone();
            tokio::spawn(async move { channels.deliver(&message).await });
        }
    }
}

async fn run_command((channel, turns): &(Channel, Turns), message: &Message) -> Result<(), String> {
    let turns = if message.needs.is_some() { &turns.needs } else { &turns.others };
    let _turn = turns.acquire().await.map_err(|closed| closed.to_string())?;
    let [program, arguments @ ..] = &channel.command[..] else {
        return Err("there is no command".into());
    };
    let failed = |error: std::io::Error| format!("`{program}`: {error}");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut line = serde_json::to_vec(message).map_err(|error| error.to_string())?;
    line.push(b'\n');
    let work = async {
        if let Some(mut stdin) = child.stdin.take() {
            // A command that does not read is judged by how it ends.
            let _ = stdin.write_all(&line).await;
        }
        child.wait().await
    };
    match timeout(COMMAND_TIME_MAX, work).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("`{program}` ended with {status}")),
        Ok(Err(error)) => Err(failed(error)),
        Err(_) => Err(format!("`{program}` took longer than {COMMAND_TIME_MAX:?}")),
    }
}

fn object(own: &NeedsPerson) -> &str {
    own.task.as_deref().or(own.knob.as_deref()).unwrap_or("the run")
}

#[cfg(test)]
mod tests {
    use super::super::status::NeedKind;
    use super::*;

    fn message(channel: &str) -> Message {
        Message {
            channel: channel.into(),
            run: 7,
            datacenter: "east".into(),
            text: "web.shift: held".into(),
            needs: None,
        }
    }

    fn channels(command: &[&str]) -> Channels {
        let command = command.iter().map(|own| (*own).to_owned()).collect();
        Channels::new(BTreeMap::from([("ops".into(), Channel { command })]), None)
    }

    #[tokio::test]
    async fn a_command_gets_the_message_as_a_line_of_json() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("message");
        let script = "cat > \"$0\"";
        let channels = channels(&["sh", "-c", script, file.to_str().unwrap()]);
        channels.deliver(&message("ops")).await;
        let text = std::fs::read_to_string(file).unwrap();
        let said: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&said["run"], &said["text"]), (&7.into(), &"web.shift: held".into()));
        assert!(text.ends_with('\n') && channels.failures() == 0);
    }

    #[tokio::test]
    async fn what_is_not_delivered_is_counted_and_holds_nothing() {
        let failing = channels(&["sh", "-c", "exit 3"]);
        failing.deliver(&message("ops")).await;
        failing.deliver(&message("a channel without a command")).await;
        assert_eq!(failing.failures(), 1);
        let missing = channels(&["/no/such/program"]);
        missing.deliver(&message("ops")).await;
        assert_eq!(missing.failures(), 1);
    }

    #[tokio::test]
    async fn a_channel_that_hangs_keeps_no_alert_from_people() {
        let command = |own: &[&str]| {
            let command = own.iter().map(|own| (*own).to_owned()).collect();
            Channel { command }
        };
        let home = tempfile::tempdir().unwrap();
        let told = home.path().join("told");
        let tell = ["sh", "-c", "grep -q needs && : > \"$0\" || sleep 60", told.to_str().unwrap()];
        let known = [("ops", command(&["sleep", "60"])), ("oncall", command(&tell))];
        let known = known.map(|(name, own)| (name.to_owned(), own));
        let channels = Arc::new(Channels::new(known.into(), Some("oncall".into())));
        channels.send((0..20).map(|_| message("ops")).collect());
        channels.send((0..20).map(|_| message("oncall")).collect());
        tokio::time::sleep(Duration::from_millis(50)).await;
        let own = NeedsPerson {
            kind: NeedKind::Failed,
            task: Some("web.shift".into()),
            knob: None,
            since: drain::Time(0),
            why: "it failed".into(),
            todo: "retry".into(),
        };
        channels.send(channels.alert(RunId(7), "east", &own).into_iter().collect());
        let is_told = async {
            while !told.exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(5), is_told).await.expect("told at once");
    }
}
