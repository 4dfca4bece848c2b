//! Epochs: what has been changed since which freeze.
//!
//! Writes between two freezes share an epoch. A view is *confirmed* once the run of its changes can
//! no longer be lost; until then every later view takes along what has changed since the last
//! confirmed one:
//!
//! ```text
//!  epoch        1     │     2     │     3     │    4  (current)
//!  writes     a b     │   b c     │   d       │
//!                  view 1      view 2      view 3
//!
//!  confirmed   changes that view 3 takes along
//!  none        a b c d      of epochs 1, 2, 3
//!  view 1      b c d        of epochs 2, 3
//!  view 2      d            of epoch 3
//! ```
//!
//! Views may be confirmed in any order; only the newest confirmed one counts. A view that fails is
//! never confirmed, and what it held is in the next one again.

/// The number of a freeze: writes before the first one are of epoch 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u32);

impl Epoch {
    /// Before any freeze: confirmed when nothing has been.
    pub const NONE: Self = Self(0);

    /// The number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// How many freezes lie between an older epoch and this one.
    pub(crate) const fn since(self, older: Self) -> u32 {
        self.0.saturating_sub(older.0)
    }

    /// The epoch so many freezes before.
    pub(crate) const fn before(self, freezes: u32) -> Self {
        Self(self.0.saturating_sub(freezes))
    }
}

/// Which epoch writes are of, and which of them are confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epochs {
    current: Epoch,
    confirmed: Epoch,
}

impl Epochs {
    /// The first epoch, nothing confirmed.
    #[must_use]
    pub const fn new() -> Self {
        Self { current: Epoch(1), confirmed: Epoch::NONE }
    }

    /// The epoch that writes are of now.
    #[must_use]
    pub const fn current(self) -> Epoch {
        self.current
    }

    /// The newest confirmed epoch. What was last changed in it or before is clean.
    #[must_use]
    pub const fn confirmed(self) -> Epoch {
        self.confirmed
    }

    /// Whether something last changed in `epoch` is part of the next view's changes.
    #[must_use]
    pub fn is_dirty(self, epoch: Epoch) -> bool {
        epoch > self.confirmed
    }

    /// Ends the current epoch and returns it: the view's.
    ///
    /// # Panics
    /// After 2³² − 2 freezes.
    pub fn freeze(&mut self) -> Epoch {
        let frozen = self.current;
        let next = frozen.0.checked_add(1).expect("fewer than 2³² freezes");
        self.current = Epoch(next);
        frozen
    }

    /// Takes in that the view of `epoch` is confirmed. An older one than the newest changes nothing,
    /// nor does one that hasn't been frozen.
    pub fn confirm(&mut self, epoch: Epoch) {
        if epoch < self.current {
            self.confirmed = self.confirmed.max(epoch);
        }
    }
}

impl Default for Epochs {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_confirmed_view_counts() {
        let mut epochs = Epochs::new();
        let views = [epochs.freeze(), epochs.freeze(), epochs.freeze()];
        assert_eq!(views.map(Epoch::number), [1, 2, 3]);
        assert!(views.iter().all(|view| epochs.is_dirty(*view)));
        epochs.confirm(views[1]);
        epochs.confirm(views[0]);
        assert_eq!(epochs.confirmed(), views[1]);
        assert_eq!(views.map(|view| epochs.is_dirty(view)), [false, false, true]);
    }

    #[test]
    fn an_epoch_that_goes_on_cannot_be_confirmed() {
        let mut epochs = Epochs::new();
        epochs.confirm(epochs.current());
        assert_eq!(epochs.confirmed(), Epoch::NONE);
    }
}
