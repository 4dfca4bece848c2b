//! The rules, one script or a few for each. The language is explained in `script.rs`.

use std::time::Duration;

use strandline_barrier::CheckpointId;

use super::script::check;
use super::{Machine, TICKETS_LIMIT};
use crate::{
    Action, Attempt, CheckpointConfig, CheckpointState, Event, Failure, Outcome, Plan, PlannedTask,
    Purpose, Refusal, TaskId,
};

#[test]
fn periodic_triggers_keep_a_fixed_rate() {
    check(
        "interval=10s",
        "deadline none | running, deadline 10s | +9s | +1s => trigger 1 @ s0
         | +1s | ack 1 s0 t0 => publish 1 | published 1 => complete 1
         | deadline 20s | +9s => trigger 2 @ s0
         | ack 2 s0 t0, published 2 => publish 2, complete 2 | +13s => trigger 3 @ s0
         | ack 3 s0 t0, published 3 => publish 3, complete 3
         | deadline 40s | +7s => trigger 4 @ s0",
    );
    // Only the first start counts; without an interval nothing starts by itself.
    check("interval=10s", "running | +5s, running | +5s => trigger 1 @ s0");
    check("", "running, deadline none | +999s");
}

#[test]
fn a_deferred_trigger_is_one_trigger() {
    // No slot from 20 s until 57 s.
    check(
        "interval=10s",
        "running | +10s => trigger 1 @ s0 | +10s, +10s, +10s, +10s, +7s, deadline 610s
         | ack 1 s0 t0, published 1 => publish 1, complete 1, trigger 2 @ s0
         | ack 2 s0 t0, published 2 => publish 2, complete 2
         | deadline 60s | +2s | +1s => trigger 3 @ s0",
    );
    // The host has slept through five points of the grid.
    check(
        "interval=10s max=4",
        "running | +57s => trigger 1 @ s0 | +2s | +1s => trigger 2 @ s0 | +10s => trigger 3 @ s0",
    );
}

#[test]
fn the_pause_counts_from_the_end_of_the_last_one() {
    let settings = "interval=10s pause=8s tolerable=1";
    check(
        settings,
        "running | +10s => trigger 1 @ s0 | +5s | ack 1 s0 t0, published 1 => publish 1, complete 1
         | +5s | deadline 23s | +2s | +1s => trigger 2 @ s0",
    );
    check(
        settings,
        "running | +10s => trigger 1 @ s0 | +5s | decline 1 t0 => abort 1 declined t0
         | +5s, +2s | +1s => trigger 2 @ s0",
    );
    check(
        "interval=10s pause=max",
        "running | +10s => trigger 1 @ s0 | ack 1 s0 t0, published 1 => publish 1, complete 1
         | +999s, deadline none",
    );
}

#[test]
fn slots_are_never_exceeded() {
    check(
        "interval=10s max=2",
        "running | +10s => trigger 1 @ s0 | +10s => trigger 2 @ s0 | +10s
         | ack 1 s0 t0 => publish 1 | published 1 => complete 1, trigger 3 @ s0 | request 7
         | ack 2 s0 t0, published 2 => publish 2, complete 2, trigger 4 @ s0",
    );
}

#[test]
fn requests_skip_the_pause_and_wait_in_order() {
    check(
        "interval=10s pause=60s",
        "running | request 7 => trigger 1 @ s0 | request 8, request 9 | +10s
         | ack 1 s0 t0, published 1
             => publish 1, complete 1, reply 7 completed 1, trigger 2 @ s0
         | ack 2 s0 t0, published 2
             => publish 2, complete 2, reply 8 completed 2, trigger 3 @ s0
         | ack 3 s0 t0, published 3 => publish 3, complete 3, reply 9 completed 3
         | +59s | +1s => trigger 4 @ s0",
    );
    // A request passes a periodic trigger that waits; that one still comes.
    check(
        "interval=10s",
        "running | +10s => trigger 1 @ s0 | +10s | request 7
         | ack 1 s0 t0, published 1 => publish 1, complete 1, trigger 2 @ s0
         | ack 2 s0 t0, published 2
             => publish 2, complete 2, reply 7 completed 2, trigger 3 @ s0",
    );
}

#[test]
fn requests_are_refused_by_name() {
    check(
        "",
        "request 7 => reply 7 refused not-running | suspend 8 => reply 8 refused not-running",
    );
    check("", "running, shutdown | request 7 => reply 7 refused shutdown");
    check(
        "",
        "running | request 7 => trigger 1 @ s0 | request 8
         | decline 1 s0
             => abort 1 declined s0, reply 7 failed declined s0, reply 8 refused job-failed,
                fail declined s0
         | request 9 => reply 9 refused job-failed",
    );
}

#[test]
fn tickets_are_limited() {
    let mut machine = check("", "running");
    let mut actions = Vec::new();
    for ticket in 0..=TICKETS_LIMIT as u64 {
        let request = Event::Request { ticket, purpose: Purpose::Checkpoint };
        machine.handle(request, Duration::ZERO, &mut actions);
    }
    let refused = Outcome::Refused(Refusal::TooManyRequests);
    let reply = Action::Reply { ticket: TICKETS_LIMIT as u64, outcome: refused };
    assert_eq!(actions.get(1..), Some([reply].as_slice()));
}

#[test]
fn ids_only_grow() {
    check(
        "tolerable=any max=2",
        "running | request 1, request 2 => trigger 1 @ s0, trigger 2 @ s0
         | request 3, request 4, request 5
         | decline 1 s0 => abort 1 declined s0, reply 1 failed declined s0, trigger 3 @ s0
         | ack 3 s0 t0 => publish 3
         | published 3 => complete 3, reply 3 completed 3, abort 2 subsumed 3,
                          reply 2 failed subsumed 3, trigger 4 @ s0, trigger 5 @ s0",
    );
}

#[test]
fn all_tasks_acknowledge() {
    check(
        "tasks=s0+s1+t0 interval=10s",
        "running | +10s => trigger 1 @ s0 s1 | ack 1 t0 | ack 1 s1 | ack 1 s0 => publish 1
         | +1s | published 1 => complete 1",
    );
}

#[test]
fn one_publish_at_a_time() {
    let three = "running | request 1, request 2, request 3
        => trigger 1 @ s0, trigger 2 @ s0, trigger 3 @ s0 | ack 2 s0 t0 => publish 2";
    check(
        "max=4",
        &format!(
            "{three} | ack 3 s0 t0 | request 4 => trigger 4 @ s0 | ack 4 s0 t0 | ack 1 s0 t0
             | published 2 => complete 2, reply 2 completed 2, abort 1 subsumed 2, discard 1 s0 t0,
                              reply 1 failed subsumed 2, publish 3
             | published 3 => complete 3, reply 3 completed 3, publish 4
             | published 4 => complete 4, reply 4 completed 4"
        ),
    );
    // If the newer one fails after all, the older one has its turn.
    check(
        "max=3 tolerable=1",
        &format!(
            "{three} | ack 3 s0 t0 | ack 1 s0 t0
             | unpublished 2 => abort 2 unpublished, reply 2 failed unpublished, publish 1
             | published 1 => complete 1, reply 1 completed 1, publish 3"
        ),
    );
}

#[test]
fn completing_subsumes_older_ones() {
    let machine = check(
        "interval=10s max=3",
        "running | +10s => trigger 1 @ s0 | +10s => trigger 2 @ s0
         | +9s, request 7 => trigger 3 @ s0
         | ack 1 s0 | ack 2 s0 t0 => publish 2
         | published 2 => complete 2, abort 1 subsumed 2, discard 1 s0
         | ack 1 t0 => discard 1 t0
         | ack 3 s0 t0, published 3 => publish 3, complete 3, reply 7 completed 3",
    );
    let status = machine.status();
    assert_eq!((status.triggered, status.completed, status.subsumed), (3, 2, 1));
    assert_eq!((status.failed, status.in_progress, status.failures_in_a_row), (0, 0, 0));
}

#[test]
fn one_decline_aborts() {
    check(
        "tolerable=9",
        "running | request 7 => trigger 1 @ s0 | ack 1 t0
         | decline 1 s0 => abort 1 declined s0, discard 1 t0, reply 7 failed declined s0
         | ack 1 s0 => discard 1 s0",
    );
    // A task that takes its word back is believed too.
    check(
        "tolerable=9",
        "running | request 7 => trigger 1 @ s0 | ack 1 s0
         | decline 1 s0 => abort 1 declined s0, discard 1 s0, reply 7 failed declined s0",
    );
}

#[test]
fn expiry_is_by_the_clock() {
    let settings = "timeout=5s tolerable=any max=2";
    check(
        settings,
        "running | request 7 => trigger 1 @ s0 | +1s, request 8 => trigger 2 @ s0 | deadline 5s
         | ack 1 s0 | +3s | +1s => abort 1 expired, discard 1 s0, reply 7 failed expired
         | deadline 6s | later 1s
         | ack 2 s0 => abort 2 expired, reply 8 failed expired, discard 2 s0
         | deadline none",
    );
    check("timeout=max", "running | request 7 => trigger 1 @ s0 | deadline none");
}

#[test]
fn a_publish_in_flight_is_awaited() {
    let publish = "running | request 7 => trigger 1 @ s0 | ack 1 s0 t0 => publish 1";
    check(
        "timeout=5s",
        &format!(
            "{publish} | decline 1 s0 | +60s, deadline none
             | published 1 => complete 1, reply 7 completed 1"
        ),
    );
    check("", &format!("{publish} | shutdown | published 1 => complete 1, reply 7 completed 1"));
    check(
        "",
        &format!(
            "{publish} | shutdown
             | unpublished 1 => abort 1 unpublished, reply 7 failed unpublished"
        ),
    );
    // One that only waits for its turn does expire.
    check(
        "timeout=5s max=2 tolerable=1",
        &format!(
            "{publish} | request 8 => trigger 2 @ s0 | ack 2 s0 t0
             | +5s => abort 2 expired, discard 2 s0 t0, reply 8 failed expired"
        ),
    );
}

#[test]
fn failures_are_counted_once() {
    let machine = check(
        "tolerable=3 timeout=5s max=3",
        "running | request 1 => trigger 1 @ s0
         | decline 1 s0 t0, decline 1 s0 => abort 1 declined s0, reply 1 failed declined s0
         | request 2 => trigger 2 @ s0 | +5s => abort 2 expired, reply 2 failed expired
         | decline 2 t0
         | request 3 => trigger 3 @ s0
         | ack 3 s0 t0, unpublished 3, unpublished 3
             => publish 3, abort 3 unpublished, reply 3 failed unpublished
         | request 4 => trigger 4 @ s0 | shutdown => abort 4 shutdown, reply 4 failed shutdown",
    );
    let status = machine.status();
    assert_eq!(status.failures_in_a_row, 3);
    let failures: Vec<_> = status.history.iter().map(|record| record.failure.clone()).collect();
    let declined = Failure::Declined { task: TaskId(0), reason: "full".to_owned() };
    let unpublished = Failure::PublishFailed { reason: "disk".to_owned() };
    let expected = [declined, Failure::Expired, unpublished, Failure::ShutDown];
    assert_eq!(failures, expected.map(Some));
}

#[test]
fn success_resets_the_count() {
    let settings = "tolerable=2 max=3";
    let fail = |id| {
        format!(
            "request {id} => trigger {id} @ s0
             | decline {id} s0 => abort {id} declined s0, reply {id} failed declined s0"
        )
    };
    let pass = |id| {
        format!(
            "request {id} => trigger {id} @ s0
             | ack {id} s0 t0, published {id}
                 => publish {id}, complete {id}, reply {id} completed {id}"
        )
    };
    let (one, two, three, four, five) = (fail(1), fail(2), pass(3), fail(4), fail(5));
    let prefix = format!(
        "running | {one} | {two} | {three} | {four} | {five} | decline 1 t0 | decline 3 s0"
    );
    assert_eq!(check(settings, &prefix).status().failures_in_a_row, 2);
    check(
        settings,
        &format!(
            "{prefix} | request 6 => trigger 6 @ s0
             | decline 6 s0
                 => abort 6 declined s0, reply 6 failed declined s0, fail declined s0"
        ),
    );
}

#[test]
fn too_many_failures_fail_the_job() {
    let machine = check(
        "max=3 interval=10s",
        "running | request 1, request 2, request 3
             => trigger 1 @ s0, trigger 2 @ s0, trigger 3 @ s0
         | ack 2 s0 t0 => publish 2 | ack 3 s0
         | decline 1 t0 => abort 1 declined t0, reply 1 failed declined t0,
                           abort 3 job-failed, discard 3 s0, reply 3 failed job-failed,
                           fail declined t0
         | deadline none | +99s | ack 3 t0 => discard 3 t0 | shutdown | end s0 t0
         | published 2 => reply 2 completed 2",
    );
    assert_eq!(machine.status().completed, 1);
    // With any number tolerable it never comes to that.
    let machine = check("interval=10s timeout=10ms tolerable=any", "running");
    let failures = (1..=500).fold(machine, |mut machine, round| {
        for ms in [0, 10] {
            let now = Duration::from_secs(10 * round) + Duration::from_millis(ms);
            let mut actions = Vec::new();
            machine.handle(Event::Tick, now, &mut actions);
            assert_eq!(actions.len(), 1);
        }
        machine
    });
    assert_eq!(failures.status().failures_in_a_row, 500);
    assert_eq!(failures.status().history.len(), 100);
}

#[test]
fn stray_acknowledgements_are_discarded() {
    check(
        "",
        "ack 1 s0 => discard 1 s0 | running | request 7 => trigger 1 @ s0
         | ack 9 s0 => discard 9 s0 | ack 1 s5 => discard 1 s5 | stray-ack 1 s0 => discard 1 s0
         | ack 1 s0 | ack 1 s0 => discard 1 s0 | ack 1 t0 => publish 1 | ack 1 t0 => discard 1 t0
         | published 1 => complete 1, reply 7 completed 1 | ack 1 s0 => discard 1 s0",
    );
}

#[test]
fn stray_messages_change_nothing() {
    check(
        "interval=10s",
        "decline 1 s0, published 1 | running | request 7 => trigger 1 @ s0
         | stray-decline 1 s0, decline 9 s0, decline 1 s5 | published 1, unpublished 1
         | stray-end s0 t0, end s5 | ack 1 s0 t0 => publish 1 | published 9, unpublished 9
         | published 1 => complete 1, reply 7 completed 1 | published 1, unpublished 1, decline 1 s0
         | +10s => trigger 2 @ s0",
    );
    // Time that runs backwards stands still.
    let mut machine = check("timeout=5s", "running | +9s, request 7 => trigger 1 @ s0");
    let mut actions = Vec::new();
    machine.handle(Event::Tick, Duration::ZERO, &mut actions);
    assert_eq!((actions, machine.deadline()), (vec![], Some(Duration::from_secs(14))));
}

#[test]
fn ended_tasks_are_triggered_directly() {
    check(
        "tasks=s0+s1+t0+t1 max=9",
        "end s0 | running | request 1 => trigger 1 @ s0 s1
         | end t1 => trigger 1 @ t1 | request 2 => trigger 2 @ s0 s1 t1",
    );
}

#[test]
fn a_task_that_ends_is_triggered_for_what_waits_for_it() {
    check(
        "tasks=s0+s1+t0 max=3",
        "running | request 1, request 2, suspend 3
             => trigger 1 @ s0 s1, trigger 2 @ s0 s1, suspend 3 @ s0 s1
         | ack 2 s0 | end s0 => trigger 1 @ s0, suspend 3 @ s0 | end s0
         | ack 1 s0, ack 3 s0 | ack 2 s1 t0 => publish 2
         | end s1 => trigger 1 @ s1, suspend 3 @ s1",
    );
}

#[test]
fn the_last_checkpoint() {
    check(
        "interval=10s",
        "running | end s0, deadline 10s | end t0 => trigger 1 @ s0 t0 | deadline 600s
         | request 7 | suspend 8 | ack 1 s0 t0 => publish 1 last
         | published 1 => complete 1 last, reply 7 completed 1, reply 8 completed 1
         | +999s, deadline none | request 9 => reply 9 refused finished",
    );
    // Without an interval, and when all have ended before the job is known to run.
    check("", "end s0 t0, deadline none | running => trigger 1 @ s0 t0");
    check("tasks=", "running => trigger 1 @, publish 1 last | published 1 => complete 1 last");
}

#[test]
fn checkpoints_before_the_last_are_not_last() {
    check(
        "interval=10s",
        "running | +10s => trigger 1 @ s0 | request 7, end s0 t0 => trigger 1 @ s0, trigger 1 @ t0
         | ack 1 s0 t0 => publish 1 | published 1 => complete 1, trigger 2 @ s0 t0
         | ack 2 s0 t0, published 2 => publish 2 last, complete 2 last, reply 7 completed 2",
    );
    check(
        "interval=10s max=2",
        "running | +10s => trigger 1 @ s0 | ack 1 s0
         | end s0 t0 => trigger 1 @ t0, trigger 2 @ s0 t0
         | ack 2 s0 t0, published 2
             => publish 2 last, complete 2 last, abort 1 subsumed 2, discard 1 s0",
    );
}

#[test]
fn a_failed_last_checkpoint_is_tried_again() {
    let script = |pause: &str| {
        format!(
            "running | end s0 t0 => trigger 1 @ s0 t0 | request 7
             | decline 1 t0 => abort 1 declined t0, reply 7 failed declined t0
             | deadline {pause} | request 8 | +{pause} => trigger 2 @ s0 t0
             | ack 2 s0 t0, published 2 => publish 2 last, complete 2 last, reply 8 completed 2"
        )
    };
    check("tolerable=1", &script("1s"));
    check("tolerable=1 interval=10s", &script("1s"));
    check("tolerable=1 interval=300ms", &script("300ms"));
    check(
        "",
        "running | end s0 t0 => trigger 1 @ s0 t0
         | decline 1 t0 => abort 1 declined t0, fail declined t0 | +99s, deadline none",
    );
}

#[test]
fn suspend_is_the_last_before_a_stop() {
    check(
        "interval=10s",
        "running | +10s => trigger 1 @ s0 | request 5 | suspend 6
         | request 7 => reply 7 refused suspending | suspend 8 | +10s
         | ack 1 s0 t0, published 1 => publish 1, complete 1, trigger 2 @ s0
         | ack 2 s0 t0, published 2 => publish 2, complete 2, reply 5 completed 2, suspend 3 @ s0
         | suspend 9 | +99s
         | ack 3 s0 t0, published 3 => publish 3, complete 3 suspend, reply 6 completed 3,
             reply 8 completed 3, reply 9 completed 3
         | +999s, deadline none | end s0 t0 | suspend 4 => reply 4 refused suspended",
    );
    check(
        "interval=10s max=2",
        "running | +10s => trigger 1 @ s0 | suspend 6 => suspend 2 @ s0
         | ack 2 s0 t0, published 2
             => publish 2, complete 2 suspend, reply 6 completed 2, abort 1 subsumed 2",
    );
}

#[test]
fn a_failed_suspend_may_be_asked_for_again() {
    check(
        "interval=10s tolerable=1",
        "running | suspend 6 => suspend 1 @ s0
         | decline 1 t0 => abort 1 declined t0, reply 6 failed declined t0
         | +99s, deadline none | request 7 => reply 7 refused suspending
         | suspend 8 => suspend 2 @ s0
         | ack 2 s0 t0, published 2 => publish 2, complete 2 suspend, reply 8 completed 2",
    );
}

#[test]
fn the_last_checkpoint_serves_as_suspend() {
    check(
        "",
        "running | request 5 => trigger 1 @ s0 | suspend 6 | ack 1 s0 t0 => publish 1 | end s0 t0
         | published 1 => complete 1, reply 5 completed 1, trigger 2 @ s0 t0
         | ack 2 s0 t0, published 2 => publish 2 last, complete 2 last, reply 6 completed 2",
    );
    let both = "running | suspend 6 => suspend 1 @ s0 | ack 1 s0 t0 => publish 1
        | end s0 t0 => trigger 2 @ s0 t0 | ack 2 s0 t0";
    check(
        "max=2 tolerable=1",
        &format!(
            "{both} | published 1 => complete 1 suspend, reply 6 completed 1, publish 2 last
             | published 2 => complete 2 last"
        ),
    );
    check(
        "max=2",
        "running | suspend 6 => suspend 1 @ s0 | ack 1 s0
         | end s0 t0 => suspend 1 @ t0, trigger 2 @ s0 t0
         | ack 2 s0 t0 => publish 2 last
         | published 2 => complete 2 last, reply 6 completed 2, abort 1 subsumed 2, discard 1 s0",
    );
}

#[test]
fn shutdown_aborts_and_starts_nothing() {
    check(
        "interval=10s",
        "running | request 7 => trigger 1 @ s0 | ack 1 s0 | request 8
         | shutdown => reply 8 refused shutdown, abort 1 shutdown, discard 1 s0,
                       reply 7 failed shutdown
         | +99s, deadline none | running | end s0 t0 | ack 1 t0 => discard 1 t0 | shutdown",
    );
    check("", "shutdown | running | request 7 => reply 7 refused shutdown");
}

#[test]
fn the_record_of_a_checkpoint_is_kept_up() {
    let state = |script: &str| {
        let status = check("tolerable=1 tasks=s0+t0", script).status();
        let record = status.history.into_iter().next_back().unwrap();
        (record.state, record.acknowledged, record.tasks, record.duration)
    };
    let second = Some(Duration::from_secs(1));
    let open = "running | +3s, request 7 => trigger 1 @ s0 | ack 1 s0 | +1s".to_owned();
    assert_eq!(state(&open), (CheckpointState::Pending, 1, 2, None));
    let publishing = format!("{open} | ack 1 t0 => publish 1");
    assert_eq!(state(&publishing), (CheckpointState::Publishing, 2, 2, None));
    let completed = format!("{publishing} | published 1 => complete 1, reply 7 completed 1");
    assert_eq!(state(&completed), (CheckpointState::Completed, 2, 2, second));
    let aborted = format!(
        "{open} | decline 1 t0 => abort 1 declined t0, discard 1 s0, reply 7 failed declined t0"
    );
    assert_eq!(state(&aborted), (CheckpointState::Aborted, 1, 2, second));
}

#[test]
fn extreme_settings_neither_panic_nor_spin() {
    let times = [Duration::ZERO, Duration::from_millis(1), Duration::from_secs(9), Duration::MAX];
    let source = PlannedTask { id: TaskId(0), source: true };
    for (interval, min_pause, timeout) in times.iter().flat_map(|&interval| {
        times.iter().flat_map(move |&pause| times.map(|timeout| (interval, pause, timeout)))
    }) {
        let config = CheckpointConfig {
            interval: Some(interval),
            min_pause,
            timeout,
            max_concurrent: 0,
            tolerable_failures: u32::MAX,
            ..CheckpointConfig::default()
        };
        let plan = Plan { tasks: vec![source] };
        let mut machine: Machine<()> = Machine::new(config, plan, Attempt(0), CheckpointId(1));
        machine.handle(Event::Running, Duration::ZERO, &mut Vec::new());
        let mut now = Duration::ZERO;
        for _ in 0..20 {
            let Some(next) = machine.deadline() else { break };
            assert!(next > now, "a tick brings time on: {next:?} after {now:?}");
            now = next;
            machine.handle(Event::Tick, now, &mut Vec::new());
        }
        machine.handle(Event::Tick, Duration::MAX, &mut Vec::new());
        assert_eq!(machine.deadline(), None);
    }
}
