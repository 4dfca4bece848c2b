//! From the graph to tasks: cuts it at exchanges, gives each part its subtasks, and builds the
//! chain of each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use crossbeam::channel::{Sender, unbounded};
use crossbeam::sync::Parker;
use strandline_coordinator::{PlannedTask, TaskId};

use crate::checkpointing::JobMetadata;
use crate::environment::JobConfig;
use crate::graph::{Connected, Graph, LinkContext, Node, NodeId, Part, Seat, Share};
use crate::link::AnyLink;
use crate::master::{Desk, OperatorPlan};
use crate::messages::Message;
use crate::pace::Pace;
use crate::sink::SinkOwner;
use crate::task::{Command, Line, Task, TaskCounters};
use crate::threads::parking_place;
use crate::{Error, ErrorKind, Result};

/// Builds all tasks of a job.
pub(crate) struct Planner<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) config: &'a JobConfig,
    pub(crate) sink_owner: &'a SinkOwner,
    pub(crate) reports: &'a Sender<Message>,
    pub(crate) pace: Option<Arc<Pace>>,
    pub(crate) base: Option<&'a JobMetadata>,
}

/// All tasks of a job.
pub(crate) struct Planned {
    pub(crate) tasks: Vec<PlannedSeat>,
    pub(crate) operators: Vec<OperatorPlan>,
    pub(crate) sources: Vec<Arc<TaskCounters>>,
}

/// One task and both ends of its lines.
pub(crate) struct PlannedSeat {
    pub(crate) id: TaskId,
    pub(crate) name: String,
    pub(crate) subtask: u32,
    pub(crate) source: bool,
    pub(crate) task: Box<dyn Task>,
    pub(crate) parker: Parker,
    pub(crate) desk: Desk,
}

impl PlannedSeat {
    /// What the coordinator knows of it.
    pub(crate) fn spec(&self) -> PlannedTask {
        PlannedTask { id: self.id, source: self.source }
    }
}

/// The subtasks of one vertex: a source or what stands behind an exchange, and its chain.
struct Vertex {
    head: NodeId,
    first_task: u32,
    places: Vec<(Parker, Waker)>,
}

type Edges = BTreeMap<NodeId, Box<dyn Connected>>;

impl Planner<'_> {
    pub(crate) fn plan(&self) -> Result<Planned> {
        let vertices = self.vertices();
        let mut edges = self.connect(&vertices);
        let operators = self.operators(&vertices);
        let mut tasks = Vec::new();
        let mut sources = Vec::new();
        for vertex in vertices {
            let node = self.node(vertex.head);
            let mut splits = self.splits(node)?;
            for (subtask, (parker, waker)) in (0..).zip(vertex.places) {
                let id = TaskId(vertex.first_task + subtask);
                let counters = Arc::new(TaskCounters::default());
                let source = matches!(node.part, Part::Source(_));
                sources.extend(source.then(|| Arc::clone(&counters)));
                let (commands, orders) = unbounded::<Command>();
                let line = Line { task: id, commands: orders, reports: self.reports.clone() };
                let name = format!("{}-{subtask}", node.name);
                let head = self.chain(vertex.head, 0, subtask, &mut edges)?;
                let seat = Seat { uid: &node.uid, line, head, counters };
                let own = splits.get_mut(subtask as usize).map(std::mem::take).unwrap_or_default();
                let task = self.task(vertex.head, subtask, seat, own, &mut edges)?;
                let desk = Desk { name: name.clone(), commands, waker };
                tasks.push(PlannedSeat { id, name, subtask, source, task, parker, desk });
            }
        }
        Ok(Planned { tasks, operators, sources })
    }

    fn node(&self, id: NodeId) -> &Node {
        self.graph.nodes.get(id.0).expect("ids come from this graph")
    }

    fn vertices(&self) -> Vec<Vertex> {
        let heads = self.graph.nodes.iter().enumerate().filter(|(_, node)| is_head(node));
        let parallelism = self.config.parallelism;
        (0..)
            .zip(heads)
            .map(|(place, (index, _))| Vertex {
                head: NodeId(index),
                first_task: place * parallelism,
                places: (0..parallelism).map(|_| parking_place()).collect(),
            })
            .collect()
    }

    /// The head of the vertex that a node belongs to.
    fn head_of(&self, mut id: NodeId) -> NodeId {
        while !is_head(self.node(id)) {
            id = self.node(id).input.expect("only a source has no input, and it is a head").node;
        }
        id
    }

    fn connect(&self, vertices: &[Vertex]) -> Edges {
        let wakers = |head: NodeId| -> Vec<Waker> {
            let vertex = vertices.iter().find(|vertex| vertex.head == head);
            let places = vertex.map_or(&[][..], |vertex| &vertex.places);
            places.iter().map(|(_, waker)| waker.clone()).collect()
        };
        let mut edges = Edges::new();
        for vertex in vertices {
            let node = self.node(vertex.head);
            if let (Part::Exchange(exchange), Some(input)) = (&node.part, node.input) {
                let upstream = wakers(self.head_of(input.node));
                edges.insert(vertex.head, exchange.connect(&upstream, &wakers(vertex.head)));
            }
        }
        edges
    }

    /// The link behind one output of a node.
    fn chain(
        &self,
        from: NodeId,
        output: usize,
        subtask: u32,
        edges: &mut Edges,
    ) -> Result<Option<AnyLink>> {
        let consumer = self.graph.consumers(from).find(|(_, read)| *read == output);
        let Some((id, _)) = consumer else {
            return Ok(None);
        };
        let node = self.node(id);
        let owner = self.sink_owner;
        let context = LinkContext { name: &node.name, uid: &node.uid, subtask, owner };
        match &node.part {
            Part::Exchange(_) => {
                let connected = edges.get_mut(&id).expect("every exchange has been connected");
                connected.upstream(&context, self.config.max_parallelism).map(Some)
            }
            Part::Operator(build) | Part::Sink(build, _) | Part::End(build) => {
                let next =
                    vec![self.chain(id, 0, subtask, edges)?, self.chain(id, 1, subtask, edges)?];
                build(&context, next).map(Some)
            }
            Part::Source(_) => Ok(None),
        }
    }

    fn task(
        &self,
        head: NodeId,
        subtask: u32,
        seat: Seat<'_>,
        splits: Share,
        edges: &mut Edges,
    ) -> Result<Box<dyn Task>> {
        match &self.node(head).part {
            Part::Source(source) => Ok(source.task(seat, splits, self.pace.clone())),
            Part::Exchange(_) => {
                let connected = edges.get_mut(&head).expect("every exchange has been connected");
                connected.downstream(subtask, seat)
            }
            Part::Operator(_) | Part::Sink(..) | Part::End(_) => {
                Err(Error::new(ErrorKind::Invalid, "a chain begins with a source or an exchange"))
            }
        }
    }

    /// The splits of each subtask of a source: dealt out in turn.
    fn splits(&self, node: &Node) -> Result<Vec<Share>> {
        let Part::Source(source) = &node.part else {
            return Ok(Vec::new());
        };
        let within = |error: Error| error.within(&format!("source `{}`", node.name));
        let names = source.splits().map_err(within)?;
        self.check_splits(node, &names).map_err(within)?;
        let count = self.config.parallelism as usize;
        let mut dealt: Vec<Share> = (0..count).map(|_| Share::default()).collect();
        if let Some(first) = dealt.first_mut() {
            first.present = Some(names.clone());
        }
        for (index, name) in names.into_iter().enumerate() {
            if let Some(share) = dealt.get_mut(index % count) {
                share.own.push(name);
            }
        }
        Ok(dealt)
    }

    /// What the checkpoint has not read to the end must still be there.
    fn check_splits(&self, node: &Node, names: &[String]) -> Result<()> {
        let stored = self.base.map_or(&[][..], |base| &base.splits);
        let mut of_source = stored.iter().filter(|split| split.source == node.uid && !split.ended);
        match of_source.find(|split| !names.contains(&split.split)) {
            None => Ok(()),
            Some(gone) => Err(Error::new(
                ErrorKind::Refused,
                format!(
                    "`{}` is no longer in the input, but the checkpoint has not read it to its \
                     end ({}): put it back, or start fresh",
                    gone.split, gone.position
                ),
            )),
        }
    }

    fn operators(&self, vertices: &[Vertex]) -> Vec<OperatorPlan> {
        let named = self.graph.nodes.iter().enumerate();
        let named = named.filter(|(_, node)| !matches!(node.part, Part::Exchange(_)));
        named
            .map(|(index, node)| {
                let head = self.head_of(NodeId(index));
                let first = vertices.iter().find(|vertex| vertex.head == head);
                let first = first.map_or(0, |vertex| vertex.first_task);
                let tasks = (first..first + self.config.parallelism).map(TaskId).collect();
                let output = match &node.part {
                    Part::Sink(_, sink) => sink.output(),
                    Part::Source(_) | Part::Operator(_) | Part::Exchange(_) | Part::End(_) => None,
                };
                OperatorPlan { uid: node.uid.clone(), name: node.name.clone(), tasks, output }
            })
            .collect()
    }
}

fn is_head(node: &Node) -> bool {
    matches!(node.part, Part::Source(_) | Part::Exchange(_))
}
