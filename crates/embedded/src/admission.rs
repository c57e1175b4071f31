//! Counts the connections of each address, so that one client cannot take all there are.
//!
//! Invariant: each counted connection is open. It knows nothing of sessions.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug)]
pub(super) struct Admission {
    most: usize,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One counted connection. Dropping it ends the count.
#[derive(Debug)]
pub(super) struct Admitted {
    address: IpAddr,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Admission {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            open: Arc::default(),
        }
    }

    /// `None` if the address already has its limit of connections.
    pub(super) fn admit(&self, address: IpAddr) -> Option<Admitted> {
        let address = address.to_canonical();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.get(&address).copied().unwrap_or_default();
        if count >= self.most {
            return None;
        }
        open.insert(address, count + 1);
        Some(Admitted {
            address,
            open: Arc::clone(&self.open),
        })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let left = open.get_mut(&self.address).map(|count| {
            *count -= 1;
            *count
        });
        if left == Some(0) {
            open.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_connections_and_no_more_at_once() {
        let admission = Admission::new(2);
        let [one, other] = ["10.0.0.1", "::1"].map(|address| address.parse().unwrap());

        let first = admission.admit(one);
        let second = admission.admit(one);
        let mapped = admission.admit("::ffff:10.0.0.1".parse().unwrap());

        assert!(first.is_some() && second.is_some() && mapped.is_none());
        let third = admission.admit(other);
        assert!(third.is_some(), "another one has its own");
        drop(first);
        let again = admission.admit(one);
        assert!(again.is_some());
        drop((second, third, again));
        assert!(admission.open.lock().unwrap().is_empty());
    }
}
