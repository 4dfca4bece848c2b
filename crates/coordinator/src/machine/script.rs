//! A small language for the tests of the rules.
//!
//! A script is a list of steps, parted by `|`; a step is `events => actions`, both parted by
//! commas, and must cause exactly these actions, in this order. Without `=>` it must cause none.
//!
//! Tasks are `s0`, `s1`, … (sources, ids 0, 1, …) and `t0`, `t1`, … (others, ids 10, 11, …). The
//! settings are `tasks=s0+t0 interval=10s pause=0s timeout=600s max=1 tolerable=0`, as needed.
//!
//! ```text
//! events   running | +1s (time passes, with a tick) | later 1s (without one)
//!          request 7 | suspend 7 | ack 1 s0 t0 | stray-ack 1 s0 (of another attempt)
//!          decline 1 s0 | stray-decline 1 s0 | end s0 t0 | stray-end s0
//!          published 1 | unpublished 1 | shutdown
//! actions  trigger 1 @ s0 t0 | suspend 1 @ s0 | publish 1 [last] | complete 1 [suspend] [last]
//!          abort 1 <failure> | discard 1 s0 t0 | reply 7 <outcome> | fail <failure>
//! also     deadline 5s | deadline none (as an event: asserts that the machine says so)
//! ```

use std::time::Duration;

use strandline_barrier::CheckpointId;

use crate::{
    Action, Attempt, CheckpointConfig, Event, Failure, Machine, Outcome, Plan, PlannedTask,
    Purpose, Refusal, TaskId,
};

const ATTEMPT: Attempt = Attempt(3);

/// Runs a script against a new machine, and gives the machine back for a closer look.
pub(super) fn check(settings: &str, script: &str) -> Machine<String> {
    let mut stage = Stage { machine: machine(settings), now: Duration::ZERO };
    for step in script.split('|').map(str::trim) {
        let (events, expected) = step.split_once("=>").unwrap_or((step, ""));
        let mut actions = Vec::new();
        for event in list(events) {
            stage.play(event, &mut actions);
        }
        let actions: Vec<String> = actions.iter().map(show).collect();
        assert_eq!(actions, list(expected).collect::<Vec<_>>(), "in step `{step}`");
    }
    stage.machine
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn machine(settings: &str) -> Machine<String> {
    let mut config = CheckpointConfig::default();
    let mut tasks = "s0+t0";
    for setting in settings.split_whitespace() {
        match setting.split_once('=').unwrap() {
            ("tasks", value) => tasks = value,
            ("interval", value) => config.interval = Some(time(value)),
            ("pause", value) => config.min_pause = time(value),
            ("timeout", value) => config.timeout = time(value),
            ("max", value) => config.max_concurrent = value.parse().unwrap(),
            ("tolerable", "any") => config.tolerable_failures = u32::MAX,
            ("tolerable", value) => config.tolerable_failures = value.parse().unwrap(),
            (name, _) => panic!("no setting `{name}`"),
        }
    }
    let planned = |name: &str| PlannedTask { id: task(name), source: name.starts_with('s') };
    let tasks = tasks.split('+').filter(|name| !name.is_empty()).map(planned).collect();
    Machine::new(config, Plan { tasks }, ATTEMPT, CheckpointId(1))
}

struct Stage {
    machine: Machine<String>,
    now: Duration,
}

impl Stage {
    fn play(&mut self, event: &str, actions: &mut Vec<Action<String>>) {
        let (verb, rest) = event.split_once(' ').unwrap_or((event, ""));
        if let Some(step) = verb.strip_prefix('+') {
            self.now += time(step);
            return self.machine.handle(Event::Tick, self.now, actions);
        }
        match verb {
            "later" => self.now += time(rest),
            "deadline" => {
                let expected = (rest != "none").then(|| time(rest));
                assert_eq!(self.machine.deadline(), expected, "deadline");
            }
            _ => {
                for event in events(verb, rest) {
                    self.machine.handle(event, self.now, actions);
                }
            }
        }
    }
}

/// The events of a verb and its words: one for each task that it names, or just one.
fn events(verb: &str, rest: &str) -> Vec<Event<String>> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let first = || words[0].parse().unwrap();
    let id = || CheckpointId(first());
    let stray = Attempt(ATTEMPT.0 - 1);
    let attempt = if verb.starts_with("stray") { stray } else { ATTEMPT };
    let each = |names: &[&str], event: &dyn Fn(&str) -> Event<String>| {
        names.iter().map(|name| event(name)).collect()
    };
    match verb {
        "running" => vec![Event::Running],
        "request" => vec![Event::Request { ticket: first(), purpose: Purpose::Checkpoint }],
        "suspend" => vec![Event::Request { ticket: first(), purpose: Purpose::Suspend }],
        "ack" | "stray-ack" => each(&words[1..], &|name| Event::Acknowledged {
            attempt,
            id: id(),
            task: task(name),
            handle: name.to_owned(),
        }),
        "decline" | "stray-decline" => each(&words[1..], &|name| Event::Declined {
            attempt,
            id: id(),
            task: task(name),
            reason: "full".to_owned(),
        }),
        "end" | "stray-end" => each(&words, &|name| Event::Ended { attempt, task: task(name) }),
        "published" => vec![Event::Published { id: id(), result: Ok(()) }],
        "unpublished" => vec![Event::Published { id: id(), result: Err("disk".to_owned()) }],
        "shutdown" => vec![Event::Shutdown],
        _ => panic!("no event `{verb}`"),
    }
}

fn time(text: &str) -> Duration {
    match (text, text.strip_suffix("ms"), text.strip_suffix('s')) {
        ("max", ..) => Duration::MAX,
        (_, Some(ms), _) => Duration::from_millis(ms.parse().unwrap()),
        (_, None, Some(seconds)) => Duration::from_secs(seconds.parse().unwrap()),
        (_, None, None) => panic!("no time `{text}`"),
    }
}

fn task(name: &str) -> TaskId {
    let number: u32 = name[1..].parse().unwrap();
    TaskId(if name.starts_with('s') { number } else { 10 + number })
}

fn name(task: TaskId) -> String {
    if task.0 < 10 { format!("s{}", task.0) } else { format!("t{}", task.0 - 10) }
}

fn show(action: &Action<String>) -> String {
    match action {
        Action::Trigger { id, purpose, roots, .. } => {
            let verb = match purpose {
                Purpose::Checkpoint => "trigger",
                Purpose::Suspend => "suspend",
            };
            let roots: Vec<String> = roots.iter().map(|&task| name(task)).collect();
            format!("{verb} {id} @ {}", roots.join(" ")).trim_end().to_owned()
        }
        Action::Publish { id, handles, last } => {
            for (task, handle) in handles {
                assert_eq!(&name(*task), handle, "each task has its own handle");
            }
            format!("publish {id}{}", if *last { " last" } else { "" })
        }
        Action::Completed { id, purpose, last } => {
            let suspend = if *purpose == Purpose::Suspend { " suspend" } else { "" };
            format!("complete {id}{suspend}{}", if *last { " last" } else { "" })
        }
        Action::Aborted { id, reason } => format!("abort {id} {}", show_failure(reason)),
        Action::Discard { id, handles } => format!("discard {id} {}", handles.join(" ")),
        Action::Reply { ticket, outcome: Outcome::Completed(id) } => {
            format!("reply {ticket} completed {id}")
        }
        Action::Reply { ticket, outcome: Outcome::Refused(refusal) } => {
            format!("reply {ticket} refused {}", show_refusal(*refusal))
        }
        Action::Reply { ticket, outcome: Outcome::Failed(failure) } => {
            format!("reply {ticket} failed {}", show_failure(failure))
        }
        Action::FailJob { reason } => format!("fail {}", show_failure(reason)),
    }
}

fn show_failure(failure: &Failure) -> String {
    match failure {
        Failure::Declined { task, reason } => {
            assert_eq!(reason, "full");
            format!("declined {}", name(*task))
        }
        Failure::Expired => "expired".to_owned(),
        Failure::PublishFailed { reason } => {
            assert_eq!(reason, "disk");
            "unpublished".to_owned()
        }
        Failure::Subsumed { by } => format!("subsumed {by}"),
        Failure::JobFailed => "job-failed".to_owned(),
        Failure::ShutDown => "shutdown".to_owned(),
    }
}

fn show_refusal(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NotRunning => "not-running",
        Refusal::TooManyRequests => "too-many",
        Refusal::Suspending => "suspending",
        Refusal::Suspended => "suspended",
        Refusal::Finished => "finished",
        Refusal::JobFailed => "job-failed",
        Refusal::ShutDown => "shutdown",
    }
}
