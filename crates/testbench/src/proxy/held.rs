//! A held reply, and everything behind it.
//!
//! Dropping it releases the reply, so that no case ends with a hanging connection.

use std::sync::Arc;

use tokio::sync::watch;

/// A reply that is held back, until the release or drop.
#[derive(Debug)]
pub struct Held(pub(crate) Arc<Latch>);

impl Held {
    /// Waits until there is a reply to hold back: the server has answered.
    pub async fn reached(&self) {
        let mut reached = self.0.reached.subscribe();
        reached
            .wait_for(|reached| *reached)
            .await
            .expect("the latch lives as long as this");
    }

    pub fn release(self) {}
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.is_open.send_replace(true);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Latch {
    pub(crate) reached: watch::Sender<bool>,
    pub(crate) is_open: watch::Sender<bool>,
}
