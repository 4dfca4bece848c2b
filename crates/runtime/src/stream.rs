//! Streams: the typed builder of a job's graph.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Waker;
use std::time::Duration;

use strandline_barrier::{InputGate, Outlet, edge};
use strandline_state::{MaxParallelism, check_key_type};

use crate::environment::Shared;
use crate::graph::{
    Connected, EVENT_TIME, ExchangePart, LinkContext, NamedCount, Part, Port, Seat, Share,
    SourcePart,
};
use crate::link::{AnyLink, BoxLink, Discard, expect_link};
use crate::operator::{Operator, OperatorLink};
use crate::operator_task::OperatorTask;
use crate::operators::basic::{FlatMap, OnBadRecord, TryMap};
use crate::operators::exchange::{Exchanged, Keyed, KeyedBatch, KeyedReceivers, Partition};
use crate::operators::keyed::{Key, StateValue, WithState};
use crate::operators::sink::SinkLink;
use crate::operators::timestamps::{Timed, Timestamps};
use crate::operators::window::{Aggregate, Sections, State, TumblingWindows};
use crate::pace::Pace;
use crate::sink::Sink;
use crate::source::Source;
use crate::source_task::SourceTask;
use crate::task::{Chain, Task};
use crate::{Error, ErrorKind, Result};

/// Envelopes that fit into one channel: a batch in work, one waiting, and the markers around them.
const CHANNEL_ENVELOPES: usize = 4;

/// A stream of records of one type: what an operator puts out and the next one reads.
///
/// Methods take the stream by value, since each output has one reader.
pub struct Stream<T> {
    shared: Rc<RefCell<Shared>>,
    port: Port,
    record: PhantomData<fn() -> T>,
}

impl<T> std::fmt::Debug for Stream<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("port", &self.port).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Stream<T> {
    pub(crate) fn from_source<S>(shared: Rc<RefCell<Shared>>, source: S) -> Self
    where
        S: Source<Record = T>,
    {
        let part = Part::Source(Box::new(SourceNode(Arc::new(source))));
        let node = shared.borrow_mut().graph.add("source", None, &["splits"], part);
        Self { shared, port: Port { node, output: 0 }, record: PhantomData }
    }

    fn then<U>(self, kind: &str, states: &'static [&'static str], part: Part) -> Stream<U> {
        let node = self.shared.borrow_mut().graph.add(kind, Some(self.port), states, part);
        Stream { shared: self.shared, port: Port { node, output: 0 }, record: PhantomData }
    }

    fn operator<O, B>(self, kind: &str, states: &'static [&'static str], build: B) -> Stream<O::Out>
    where
        O: Operator<In = T> + 'static,
        B: Fn(&LinkContext<'_>) -> O + Send + Sync + 'static,
        O::Out: Send,
    {
        let build = move |context: &LinkContext<'_>, next| {
            let link = OperatorLink::new(context.name, build(context), only::<O::Out>(next));
            Ok(any(Box::new(link) as BoxLink<T>))
        };
        self.then(kind, states, Part::Operator(Box::new(build)))
    }

    /// Names the operator for logs and commands.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        if let Some(node) = self.shared.borrow_mut().graph.node_mut(self.port.node) {
            name.clone_into(&mut node.name);
        }
        self
    }

    /// Gives the operator the id under which its state is kept. Without one it is
    /// `<kind>-<place in the graph>`, which stays the same only as long as the graph does.
    #[must_use]
    pub fn uid(self, uid: &str) -> Self {
        if let Some(node) = self.shared.borrow_mut().graph.node_mut(self.port.node) {
            if node.name == node.uid {
                uid.clone_into(&mut node.name);
            }
            uid.clone_into(&mut node.uid);
        }
        self
    }

    /// One record in, one out.
    pub fn map<U, F>(self, function: F) -> Stream<U>
    where
        U: Send + 'static,
        F: Fn(T) -> U + Clone + Send + Sync + 'static,
    {
        self.operator("map", &[], move |_| {
            let function = function.clone();
            FlatMap::new(move |record, out: &mut Vec<U>| out.push(function(record)))
        })
    }

    /// Lets through what the predicate holds for.
    pub fn filter<F>(self, predicate: F) -> Self
    where
        F: Fn(&T) -> bool + Clone + Send + Sync + 'static,
    {
        self.operator("filter", &[], move |_| {
            let predicate = predicate.clone();
            FlatMap::new(move |record, out: &mut Vec<T>| {
                out.extend(Some(record).filter(&predicate));
            })
        })
    }

    /// One record in, any number out.
    pub fn flat_map<U, F>(self, function: F) -> Stream<U>
    where
        U: Send + 'static,
        F: Fn(T, &mut Vec<U>) + Clone + Send + Sync + 'static,
    {
        self.operator("flat-map", &[], move |_| FlatMap::new(function.clone()))
    }

    /// One record in, one out, or a reason why not: then the job fails with that reason, or the
    /// record is logged, counted (`JobResult::skipped`) and left out, as `policy` says.
    pub fn try_map<U, F>(self, policy: OnBadRecord, function: F) -> Stream<U>
    where
        U: Send + 'static,
        F: Fn(T) -> Result<U, String> + Clone + Send + Sync + 'static,
    {
        let skipped = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&skipped);
        let stream = self.operator("try-map", &[], move |_| {
            TryMap::new(function.clone(), policy, Arc::clone(&skipped))
        });
        stream.count("skipped", count)
    }

    fn count(self, name: &'static str, count: Arc<AtomicU64>) -> Self {
        self.shared.borrow_mut().counts.push(NamedCount { name, count });
        self
    }

    /// Event time: takes it from each record (Unix milliseconds), and bounds how much later than
    /// the newest of its split a record may come before it counts as late.
    ///
    /// Watermarks are sent after each batch, and how many records are in a batch depends on how
    /// fast they come. So a record that is later than the bound *may* count as late, and one
    /// within it never does.
    pub fn event_time<F>(self, time: F, max_lateness: Duration) -> Stream<Timed<T>>
    where
        F: Fn(&T) -> i64 + Clone + Send + Sync + 'static,
    {
        let max_lateness_ms = i64::try_from(max_lateness.as_millis()).unwrap_or(i64::MAX);
        let build = move |context: &LinkContext<'_>, next| {
            let section = context.section("newest");
            let next = only::<Timed<T>>(next);
            let link = Timestamps::new(section, time.clone(), max_lateness_ms, next);
            Ok(any(Box::new(link) as BoxLink<T>))
        };
        self.then(EVENT_TIME, &["newest"], Part::Operator(Box::new(build)))
    }

    /// Parts the stream by key: all records of a key go to the same subtask, in the order in which
    /// each upstream subtask sent them.
    ///
    /// A key type with floats or maps in it is refused when the job is executed: they have no
    /// canonical bytes.
    pub fn key_by<K, F>(self, key: F) -> KeyedStream<K, T>
    where
        T: Exchanged,
        K: Key,
        F: Fn(&T) -> K + Clone + Send + Sync + 'static,
    {
        if let Err(error) = check_key_type::<K>() {
            let refused = Error::new(ErrorKind::Invalid, "key_by: the key's type can't be used");
            self.shared.borrow_mut().refuse(refused.because(error));
        }
        let part = Part::Exchange(Box::new(ExchangeNode { key, types: PhantomData }));
        KeyedStream { stream: self.then("key-by", &[], part) }
    }

    /// Writes the stream to a sink that commits with the checkpoint.
    pub fn sink_to<S>(self, sink: S) -> SinkEnd
    where
        S: Sink<Record = T>,
    {
        let sink = Arc::new(sink);
        let writers = Arc::clone(&sink);
        let build = move |context: &LinkContext<'_>, _| {
            let writer = writers.writer(context.owner, context.subtask)?;
            let link =
                SinkLink::new(context.name, context.section("pending"), context.subtask, writer);
            Ok(any(Box::new(link) as BoxLink<T>))
        };
        let part = Part::Sink(Box::new(build), Box::new(sink));
        SinkEnd { stream: self.then("sink", &["pending"], part) }
    }

    /// Lets the records go. The operators before still run.
    pub fn discard(self) -> SinkEnd {
        let build = |_: &LinkContext<'_>, _| Ok(any(Box::new(Discard::<T>::new()) as BoxLink<T>));
        SinkEnd { stream: self.then("discard", &[], Part::End(Box::new(build))) }
    }
}

/// The end of a stream, for naming it.
#[derive(Debug)]
pub struct SinkEnd {
    stream: Stream<()>,
}

impl SinkEnd {
    /// Names the sink for logs and commands.
    #[must_use = "naming it is all this does, but the sink is in the job either way"]
    pub fn name(self, name: &str) -> Self {
        Self { stream: self.stream.name(name) }
    }

    /// Gives the sink the id under which its state is kept.
    pub fn uid(self, uid: &str) -> Self {
        Self { stream: self.stream.uid(uid) }
    }
}

/// A stream parted by key. Behind it, state is kept per key.
#[derive(Debug)]
pub struct KeyedStream<K, T> {
    stream: Stream<Keyed<K, T>>,
}

impl<K: Key, T: Exchanged> KeyedStream<K, T> {
    /// Names the exchange for logs and commands.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        Self { stream: self.stream.name(name) }
    }

    /// Calls a function with each record and the value kept for its key, which starts as the
    /// default. State `value`.
    pub fn map_with_state<V, U, F>(self, function: F) -> Stream<U>
    where
        V: StateValue + Default,
        U: Send + 'static,
        F: Fn(&K, T, &mut V) -> U + Clone + Send + Sync + 'static,
    {
        self.flat_map_with_state(move |key: &K, record, value: &mut V, out: &mut Vec<U>| {
            out.push(function(key, record, value));
        })
    }

    /// The same with any number of records out.
    pub fn flat_map_with_state<V, U, F>(self, function: F) -> Stream<U>
    where
        V: StateValue + Default,
        U: Send + 'static,
        F: Fn(&K, T, &mut V, &mut Vec<U>) + Clone + Send + Sync + 'static,
    {
        self.stream.operator("with-state", &["value"], move |context| {
            WithState::<K, T, V, U, F>::new(context.section("value"), function.clone())
        })
    }
}

impl<K: Key, T: Exchanged> KeyedStream<K, Timed<T>> {
    /// Tumbling windows of event time, aligned to the Unix epoch.
    ///
    /// # Panics
    /// `size` is shorter than a millisecond.
    pub fn window(self, size: Duration) -> WindowedStream<K, T> {
        let size_ms = i64::try_from(size.as_millis()).unwrap_or(i64::MAX);
        assert!(size_ms > 0, "a window is at least a millisecond long");
        WindowedStream { stream: self.stream, size_ms }
    }
}

/// A keyed stream cut into windows.
#[derive(Debug)]
pub struct WindowedStream<K, T> {
    stream: Stream<Keyed<K, Timed<T>>>,
    size_ms: i64,
}

impl<K: Key, T: Exchanged> WindowedStream<K, T> {
    /// Folds each window into one result, sent when the watermark has passed it. The second stream
    /// has the records that came too late for their window; they are counted
    /// (`JobResult::late`) whether anybody reads it or not. States `windows` and `time`.
    pub fn aggregate<A>(self, aggregate: A) -> (Stream<A::Out>, Stream<T>)
    where
        A: Aggregate<In = T, Key = K> + Clone + Sync,
    {
        let late_count = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&late_count);
        let size_ms = self.size_ms;
        let build = move |context: &LinkContext<'_>, next| {
            let [next, late] = pair(next);
            let (next, late) = (expect_or_discard(next), expect_or_discard(late));
            let link = TumblingWindows {
                name: context.name.to_owned(),
                subtask: context.subtask,
                size_ms,
                aggregate: aggregate.clone(),
                sections: Sections {
                    windows: context.section("windows"),
                    time: context.section("time"),
                },
                late_count: Arc::clone(&late_count),
                next,
                late,
                state: State::new(),
            };
            Ok(any(Box::new(link) as BoxLink<Keyed<K, Timed<T>>>))
        };
        let part = Part::Operator(Box::new(build));
        let results: Stream<A::Out> = self.stream.then("window", &["windows", "time"], part);
        let results = results.count("late", count);
        let late = Stream {
            shared: Rc::clone(&results.shared),
            port: Port { node: results.port.node, output: 1 },
            record: PhantomData,
        };
        (results, late)
    }
}

fn any<T: 'static>(link: BoxLink<T>) -> AnyLink {
    Box::new(link)
}

/// The link behind the only output.
fn only<T: Send + 'static>(next: Vec<Option<AnyLink>>) -> BoxLink<T> {
    expect_or_discard(next.into_iter().next().flatten())
}

/// The links behind two outputs.
fn pair(next: Vec<Option<AnyLink>>) -> [Option<AnyLink>; 2] {
    let mut next = next.into_iter();
    [next.next().flatten(), next.next().flatten()]
}

/// What nobody reads is discarded.
fn expect_or_discard<T: Send + 'static>(link: Option<AnyLink>) -> BoxLink<T> {
    link.map_or_else(|| Box::new(Discard::new()) as BoxLink<T>, expect_link)
}

struct SourceNode<S>(Arc<S>);

impl<S: Source> SourcePart for SourceNode<S> {
    fn input(&self) -> Option<String> {
        self.0.input()
    }

    fn splits(&self) -> Result<Vec<String>> {
        self.0.splits()
    }

    fn task(&self, seat: Seat<'_>, share: Share, pace: Option<Arc<Pace>>) -> Box<dyn Task> {
        let chain = Chain::new(seat.line, expect_or_discard(seat.head), seat.counters);
        Box::new(SourceTask::new(seat.uid, Arc::clone(&self.0), share, chain, pace))
    }
}

struct ExchangeNode<T, K, F> {
    key: F,
    types: PhantomData<fn(T) -> K>,
}

impl<T, K, F> ExchangePart for ExchangeNode<T, K, F>
where
    T: Exchanged,
    K: Key,
    F: Fn(&T) -> K + Clone + Send + Sync + 'static,
{
    fn connect(&self, upstream: &[Waker], downstream: &[Waker]) -> Box<dyn Connected> {
        let mut receivers: Vec<KeyedReceivers<K, T>> =
            downstream.iter().map(|_| Vec::with_capacity(upstream.len())).collect();
        let outlets = upstream.iter().map(|sender| {
            let senders = downstream.iter().zip(&mut receivers).map(|(receiver, ends)| {
                let (tx, rx) = edge(CHANNEL_ENVELOPES, sender.clone(), receiver.clone());
                ends.push(rx);
                tx
            });
            Some(Outlet::new(senders.collect()))
        });
        let outlets = outlets.collect();
        let receivers = receivers.into_iter().map(Some).collect();
        Box::new(ExchangeEdges { key: self.key.clone(), outlets, receivers })
    }
}

/// The edges of one exchange; each end is handed out once.
struct ExchangeEdges<T, K, F> {
    key: F,
    outlets: Vec<Option<Outlet<KeyedBatch<K, T>>>>,
    receivers: Vec<Option<KeyedReceivers<K, T>>>,
}

impl<T, K, F> Connected for ExchangeEdges<T, K, F>
where
    T: Exchanged,
    K: Key,
    F: Fn(&T) -> K + Clone + Send + Sync + 'static,
{
    fn upstream(&mut self, context: &LinkContext<'_>, max: MaxParallelism) -> Result<AnyLink> {
        let outlet = take(&mut self.outlets, context.subtask)?;
        let link = Partition::new(context.name, self.key.clone(), max, outlet);
        Ok(any(Box::new(link) as BoxLink<T>))
    }

    fn downstream(&mut self, subtask: u32, seat: Seat<'_>) -> Result<Box<dyn Task>> {
        let gate = InputGate::new(take(&mut self.receivers, subtask)?);
        let chain =
            Chain::new(seat.line, expect_or_discard::<Keyed<K, T>>(seat.head), seat.counters);
        Ok(Box::new(OperatorTask::new(chain, gate)))
    }
}

fn take<E>(ends: &mut [Option<E>], subtask: u32) -> Result<E> {
    let end = ends.get_mut(subtask as usize).and_then(Option::take);
    end.ok_or_else(|| Error::new(ErrorKind::Invalid, format!("no edge for subtask={subtask}")))
}
