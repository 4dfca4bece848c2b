//! An input read from front to back; zeros where it has ended.

/// What the fuzzer gave.
#[derive(Debug)]
pub struct Input<'a>(&'a [u8]);

/// Numbers at which things tend to break.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    127,
    128,
    255,
    1 << 16,
    1 << 20,
    (1 << 24) + 1,
    1 << 30,
    u32::MAX as u64 - 1,
    u32::MAX as u64,
    1 << 32,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

impl<'a> Input<'a> {
    /// All of it.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number of 16 bits.
    pub fn short(&mut self) -> usize {
        usize::from(self.byte()) | usize::from(self.byte()) << 8
    }

    /// One of so many; 0 if there is none.
    pub fn below(&mut self, count: usize) -> usize {
        let number = if count > 256 { self.short() } else { usize::from(self.byte()) };
        number.checked_rem(count).unwrap_or(0)
    }

    /// A number, often one at an edge.
    pub fn number(&mut self) -> u64 {
        let kind = usize::from(self.byte());
        match EDGES.get(kind) {
            Some(edge) => *edge,
            None if kind < 128 => kind as u64,
            None => {
                let bytes: [u8; 8] = std::array::from_fn(|_| self.byte());
                u64::from_le_bytes(bytes) >> (kind % 64)
            }
        }
    }

    /// At most 255 bytes, behind their number.
    pub fn prefixed(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte());
        self.take(len)
    }

    /// So many bytes, if they are there.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Changes bytes in one place: flips, overwrites, inserts, removes or cuts off.
    pub fn edit(&mut self, bytes: &mut Vec<u8>) {
        let kind = self.byte();
        // Ends are as interesting as beginnings.
        let mut at = self.below(bytes.len().max(1));
        if kind >= 128 {
            at = bytes.len().saturating_sub(at + 1);
        }
        match kind % 6 {
            0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (self.byte() % 8)),
            1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = self.byte()),
            2 => {
                let number = self.number().to_le_bytes();
                let len = 1 + usize::from(self.byte() % 8);
                let there = bytes.iter_mut().skip(at);
                there.zip(number).take(len).for_each(|(to, from)| *to = from);
            }
            3 => drop(bytes.splice(at..at, self.prefixed().iter().copied())),
            4 => {
                let end = bytes.len().min(at + usize::from(self.byte()));
                drop(bytes.drain(at..end));
            }
            _ => bytes.truncate(at),
        }
    }
}
