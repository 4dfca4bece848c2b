//! The job master without a thread or a clock: messages in, commands out, time as an argument.

use crossbeam::channel::unbounded;
use strandline_coordinator::{CheckpointConfig, Plan, PlannedTask};
use strandline_snapshot::{Claim, MemoryStore};

use super::*;

const TASK: TaskId = TaskId(0);

/// A master of one source task, whose storage work is done at once.
struct Scene {
    master: JobMaster,
    to_master: Sender<Message>,
    commands: Receiver<Command>,
}

impl Scene {
    fn new() -> Self {
        Self::with(CheckpointConfig::default())
    }

    fn with(config: CheckpointConfig) -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let job = JobId::for_name("scene");
        let owner =
            Owner::claim(Arc::clone(&store), Claim::new("scene")).expect("nobody else has it");
        let (outbox, inbox) = unbounded();
        let (orders, commands) = unbounded();
        let desk =
            Desk { name: "source".to_owned(), commands: orders, waker: Waker::noop().clone() };
        let plan = Plan { tasks: vec![PlannedTask { id: TASK, source: true }] };
        let attempt = Attempt(1);
        let master = JobMaster::new(Parts {
            job_name: "scene".to_owned(),
            machine: Machine::new(config, plan, attempt, CheckpointId(1)),
            attempt,
            tasks: BTreeMap::from([(TASK, desk)]),
            operators: Vec::new(),
            max_parallelism: 128,
            owner: Arc::new(owner),
            retained_count: 1,
            inbox,
            outbox: outbox.clone(),
            executor: Arc::new(|work: Work| work()),
            board: Arc::new(Board::default()),
            store,
            job,
            restored: None,
        });
        Self { master, to_master: outbox, commands }
    }

    fn report(&self, report: Report) {
        self.to_master.send(Message::Task(TASK, report)).expect("the master is there");
    }

    fn request(&self, request: Request) {
        self.to_master.send(Message::Request(request)).expect("the master is there");
    }

    fn poll(&mut self, second: u64) -> Polled {
        self.master.poll(Now { monotonic: Duration::from_secs(second), unix_ms: 0 })
    }

    fn command(&self) -> Option<Command> {
        self.commands.try_recv().ok()
    }

    /// Brings the job to its last checkpoint: the task has been told to commit and end.
    fn finish(&mut self) {
        self.report(Report::Running);
        self.report(Report::Ended);
        assert!(matches!(self.poll(1), Polled::Until(_)));
        let Some(Command::Trigger { barrier, hold: false }) = self.command() else {
            panic!("a task that has ended is triggered directly");
        };
        self.report(Report::Frozen { id: barrier.id, snapshot: TaskSnapshot::default() });
        assert!(matches!(self.poll(2), Polled::Until(_)));
        let told = self.command();
        assert_eq!(told, Some(Command::Completed { id: barrier.id, exit: true }));
    }
}

fn ended(polled: Polled) -> Result<JobOutcome> {
    match polled {
        Polled::Over(outcome) => outcome,
        Polled::Until(until) => panic!("the job goes on until {until:?}"),
    }
}

#[test]
fn finished_is_said_when_the_task_has_committed_and_ended() {
    let mut scene = Scene::new();
    scene.finish();
    scene.report(Report::Exited);
    let outcome = ended(scene.poll(3)).expect("it finishes");
    assert_eq!(outcome, JobOutcome::Finished { checkpoint: CheckpointId(1) });
}

#[test]
fn a_task_that_does_not_commit_in_time_is_an_error_and_not_finished() {
    let mut scene = Scene::new();
    scene.finish();
    assert!(matches!(scene.poll(500), Polled::Until(Some(_))), "committing may take a while");
    let error = ended(scene.poll(700)).expect_err("its output is not committed");
    assert_eq!(error.kind(), ErrorKind::Sink);
    assert!(error.to_string().contains("checkpoint 1"), "{error}");
}

#[test]
fn a_failed_commit_is_the_outcome_although_the_checkpoint_is_complete() {
    let mut scene = Scene::new();
    scene.finish();
    scene.report(Report::Failed(Error::new(ErrorKind::Sink, "no room for the commit")));
    scene.report(Report::Exited);
    let error = ended(scene.poll(3)).expect_err("its output is not committed");
    assert!(error.to_string().contains("no room for the commit"), "{error}");
}

#[test]
fn a_suspension_ends_without_a_checkpoint_when_its_grace_is_over() {
    let mut scene = Scene::new();
    scene.report(Report::Running);
    scene.request(Request::Suspend { grace: Duration::from_secs(5) });
    assert!(matches!(scene.poll(1), Polled::Until(Some(_))));
    assert!(matches!(scene.command(), Some(Command::Trigger { hold: true, .. })));
    assert!(matches!(scene.poll(7), Polled::Until(_)));
    assert_eq!(scene.command(), Some(Command::Stop));
    scene.report(Report::Exited);
    let outcome = ended(scene.poll(8)).expect("it ends in order");
    assert_eq!(outcome, JobOutcome::Suspended { checkpoint: None });
}

/// Storage threads may come to a later checkpoint first: it takes no number from an earlier one.
#[test]
fn checkpoints_are_begun_in_the_order_of_their_numbers() {
    let mut scene = Scene::with(CheckpointConfig {
        interval: None,
        min_pause: Duration::ZERO,
        max_concurrent: 2,
        ..CheckpointConfig::default()
    });
    scene.report(Report::Running);
    let replies = [unbounded(), unbounded()];
    for (second, (reply, _)) in (1..).zip(&replies) {
        scene.request(Request::Checkpoint { reply: reply.clone() });
        scene.poll(second);
        let id = CheckpointId(second);
        assert!(
            matches!(scene.command(), Some(Command::Trigger { barrier, .. }) if barrier.id == id)
        );
    }
    for id in [2, 1].map(CheckpointId) {
        let owner = Arc::clone(&scene.master.parts.owner);
        let making = Arc::clone(&scene.master.making[&id]);
        making.open(&owner, id).expect("its number is its own");
    }
    for id in [1, 2].map(CheckpointId) {
        scene.report(Report::Frozen { id, snapshot: TaskSnapshot::default() });
        scene.poll(3);
    }
    let outcomes = replies.map(|(_, outcome)| outcome.try_recv().expect("it is decided"));
    assert_eq!(outcomes, [1, 2].map(|id| Outcome::Completed(CheckpointId(id))));
}

#[test]
fn the_first_error_is_the_jobs_and_its_consequences_are_not() {
    let mut scene = Scene::new();
    scene.report(Report::Running);
    scene.report(Report::Failed(Error::new(ErrorKind::Operator, "the cause")));
    scene.report(Report::Failed(Error::new(ErrorKind::PeerGone, "a consequence")));
    scene.report(Report::Exited);
    let error = ended(scene.poll(1)).expect_err("it failed");
    assert!(error.to_string().contains("the cause"), "{error}");
    assert!(error.to_string().contains("task `source`"), "{error}");
}
