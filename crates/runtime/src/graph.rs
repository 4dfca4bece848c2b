//! The logical graph that the builder makes: nodes, and how each is turned into links and tasks.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Waker;

use strandline_barrier::CheckpointId;
use strandline_state::MaxParallelism;

use crate::link::AnyLink;
use crate::pace::Pace;
use crate::sink::{Committable, SinkOwner};
use crate::task::{Line, Task, TaskCounters};
use crate::{Error, ErrorKind, Result};

/// The kind of the operator that makes watermarks.
pub(crate) const EVENT_TIME: &str = "event-time";

/// A node's place in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeId(pub(crate) usize);

/// One output of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) node: NodeId,
    pub(crate) output: usize,
}

/// The graph of a job. A node stands after all that feed it.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
}

/// One operator as the user named it.
pub(crate) struct Node {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// What feeds it; nothing feeds a source.
    pub(crate) input: Option<Port>,
    /// The states it keeps; sections are named `<uid>/<state>`.
    pub(crate) states: &'static [&'static str],
    pub(crate) part: Part,
}

/// What a node becomes.
pub(crate) enum Part {
    Source(Box<dyn SourcePart>),
    Operator(LinkBuilder),
    Exchange(Box<dyn ExchangePart>),
    Sink(LinkBuilder, Box<dyn SinkPart>),
    /// A sink that commits nothing.
    End(LinkBuilder),
}

/// Builds the link of an operator from the links behind its outputs.
pub(crate) type LinkBuilder =
    Box<dyn Fn(&LinkContext<'_>, Vec<Option<AnyLink>>) -> Result<AnyLink> + Send + Sync>;

/// What a link may know of where it stands.
pub(crate) struct LinkContext<'a> {
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) subtask: u32,
    pub(crate) owner: &'a SinkOwner,
}

impl LinkContext<'_> {
    /// The section of one of its states.
    pub(crate) fn section(&self, state: &str) -> String {
        format!("{}/{state}", self.uid)
    }
}

/// Turns a source into tasks.
pub(crate) trait SourcePart: Send + Sync {
    fn input(&self) -> Option<String>;

    /// Lists the splits, once a start.
    fn splits(&self) -> Result<Vec<String>>;

    /// The task that reads these splits.
    fn task(&self, seat: Seat<'_>, share: Share, pace: Option<Arc<Pace>>) -> Box<dyn Task>;
}

/// The splits of one subtask of a source.
#[derive(Default)]
pub(crate) struct Share {
    pub(crate) own: Vec<String>,
    /// All splits of the source, for the one subtask that remembers what has become of others.
    pub(crate) present: Option<Vec<String>>,
}

/// A task's place in the plan, and its chain.
pub(crate) struct Seat<'a> {
    pub(crate) uid: &'a str,
    pub(crate) line: Line,
    /// Nothing reads what it puts out where there is none.
    pub(crate) head: Option<AnyLink>,
    pub(crate) counters: Arc<TaskCounters>,
}

/// Turns an exchange into edges.
pub(crate) trait ExchangePart: Send + Sync {
    /// Makes an edge from every upstream to every downstream subtask; the wakers are theirs.
    fn connect(&self, upstream: &[Waker], downstream: &[Waker]) -> Box<dyn Connected>;
}

/// The edges of one exchange, to be handed out.
pub(crate) trait Connected {
    /// The link that ends the chain of an upstream subtask.
    fn upstream(&mut self, context: &LinkContext<'_>, max: MaxParallelism) -> Result<AnyLink>;

    /// The task of a downstream subtask.
    fn downstream(&mut self, subtask: u32, seat: Seat<'_>) -> Result<Box<dyn Task>>;
}

/// What a sink does once a start, before any task runs.
pub(crate) trait SinkPart: Send + Sync {
    fn output(&self) -> Option<String>;
    fn check_fresh(&self) -> Result<()>;
    fn check_recover(&self, job: &str, restored: CheckpointId) -> Result<()>;
    fn start_fresh(&self, owner: &SinkOwner) -> Result<()>;
    fn recover(
        &self,
        owner: &SinkOwner,
        restored: CheckpointId,
        pending: Vec<Committable>,
    ) -> Result<()>;
}

impl<S: crate::sink::Sink> SinkPart for Arc<S> {
    fn output(&self) -> Option<String> {
        S::output(self)
    }

    fn check_fresh(&self) -> Result<()> {
        S::check_fresh(self)
    }

    fn check_recover(&self, job: &str, restored: CheckpointId) -> Result<()> {
        S::check_recover(self, job, restored)
    }

    fn start_fresh(&self, owner: &SinkOwner) -> Result<()> {
        S::start_fresh(self, owner)
    }

    fn recover(
        &self,
        owner: &SinkOwner,
        restored: CheckpointId,
        pending: Vec<Committable>,
    ) -> Result<()> {
        S::recover(self, owner, restored, pending)
    }
}

/// A count kept by an operator for the job's result.
pub(crate) struct NamedCount {
    pub(crate) name: &'static str,
    pub(crate) count: Arc<AtomicU64>,
}

impl Graph {
    /// Adds a node; its uid is `<kind>-<place>` until the user gives one.
    pub(crate) fn add(
        &mut self,
        kind: &str,
        input: Option<Port>,
        states: &'static [&'static str],
        part: Part,
    ) -> NodeId {
        let id = NodeId(self.nodes.len());
        let uid = format!("{kind}-{}", id.0);
        let (kind, name) = (kind.to_owned(), uid.clone());
        self.nodes.push(Node { kind, name, uid, input, states, part });
        id
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id.0)
    }

    /// What is wrong with it, if anything.
    pub(crate) fn check(&self) -> Result<()> {
        for (index, node) in self.nodes.iter().enumerate() {
            check_uid(&node.uid)?;
            if self.nodes.iter().take(index).any(|earlier| earlier.uid == node.uid) {
                return Err(invalid(format!("two operators have the uid `{}`", node.uid)));
            }
        }
        self.check_event_time()?;
        self.check_outputs()?;
        self.check_inputs()?;
        let has_source = self.nodes.iter().any(|node| matches!(node.part, Part::Source(_)));
        if has_source { Ok(()) } else { Err(invalid("the job has no source".to_owned())) }
    }

    /// Watermarks are made per split, so nothing but a chain may be between a source and them.
    fn check_event_time(&self) -> Result<()> {
        let is_late = |node: &&Node| node.kind == EVENT_TIME && self.is_behind_exchange(node);
        match self.nodes.iter().find(is_late) {
            None => Ok(()),
            Some(node) => {
                let text = format!("`{}`: event time must be taken before `key_by`", node.name);
                Err(invalid(text))
            }
        }
    }

    /// Two sinks in one place would take each other's output for their own.
    fn check_outputs(&self) -> Result<()> {
        let mut seen = BTreeSet::new();
        for node in &self.nodes {
            let Part::Sink(_, sink) = &node.part else { continue };
            let Some(output) = sink.output() else { continue };
            if !seen.insert(output.clone()) {
                let text = format!("sink `{}`: another sink writes to {output} as well", node.name);
                return Err(invalid(text));
            }
        }
        Ok(())
    }

    /// A job that reads what it writes would read it again after a restart, and one that may remove
    /// old output would remove its input.
    fn check_inputs(&self) -> Result<()> {
        let inputs = self.nodes.iter().filter_map(|node| match &node.part {
            Part::Source(source) => source.input(),
            Part::Operator(_) | Part::Exchange(_) | Part::Sink(..) | Part::End(_) => None,
        });
        let inputs: Vec<String> = inputs.collect();
        for node in &self.nodes {
            let Part::Sink(_, sink) = &node.part else { continue };
            let Some(output) = sink.output() else { continue };
            let inside = |input: &&String| Path::new(input).starts_with(&output);
            if let Some(input) = inputs.iter().find(inside) {
                let text = format!(
                    "sink `{}`: the output folder {output} holds the input {input}: choose another",
                    node.name
                );
                return Err(invalid(text));
            }
        }
        Ok(())
    }

    fn is_behind_exchange(&self, node: &Node) -> bool {
        let above = |node: &Node| node.input.and_then(|port| self.nodes.get(port.node.0));
        std::iter::successors(above(node), |upstream| above(upstream))
            .any(|upstream| matches!(upstream.part, Part::Exchange(_)))
    }

    /// The nodes that read from a node, with the output that they read.
    pub(crate) fn consumers(&self, of: NodeId) -> impl Iterator<Item = (NodeId, usize)> + '_ {
        self.nodes.iter().enumerate().filter_map(move |(index, node)| {
            node.input.filter(|port| port.node == of).map(|port| (NodeId(index), port.output))
        })
    }

    /// The names of all sections that the job keeps.
    pub(crate) fn sections(&self) -> Vec<String> {
        let of = |node: &Node| {
            let uid = node.uid.clone();
            node.states.iter().map(move |state| format!("{uid}/{state}"))
        };
        self.nodes.iter().flat_map(of).collect()
    }
}

/// Uids become parts of section names: 1 to 200 characters, no slash, no control character.
fn check_uid(uid: &str) -> Result<()> {
    let fits = (1..=200).contains(&uid.len());
    if fits && !uid.contains('/') && !uid.chars().any(char::is_control) {
        return Ok(());
    }
    Err(invalid(format!(
        "the uid {uid:?} must have 1 to 200 bytes, no slash, no control character"
    )))
}

fn invalid(text: String) -> Error {
    Error::new(ErrorKind::Invalid, text)
}
