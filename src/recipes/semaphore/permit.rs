//! The guard of a semaphore: its permits, which are taken and given back together.

use std::sync::Arc;

use crate::guard::hold::Hold;
use crate::guard::{guard_methods, place_methods, revocable_methods};

/// Held permits of a [`Semaphore`](crate::Semaphore), taken and given back all at once.
///
/// Drop it to give them back in the background, or [`release`](Self::release) it to wait for the
/// answer. Its lease and its loss are those of a [`Guard`](crate::Guard).
#[must_use = "the permits are given back when this is dropped"]
#[clippy::has_significant_drop]
pub struct Permit {
    pub(crate) hold: Arc<Hold>,
    permits: u32,
}

guard_methods!(Permit);
revocable_methods!(Permit);
place_methods!(Permit);

impl Permit {
    pub(super) fn new(hold: Arc<Hold>, permits: u32) -> Self {
        Self { hold, permits }
    }

    /// The number of permits, at least 1.
    pub fn permits(&self) -> u32 {
        self.permits
    }
}
