//! A proxy before each server of a world, for faults on all of them.
//!
//! It has no faults of its own.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;

use super::{End, Proxy, Way};
use crate::World;
use crate::events::Nanos;
use crate::stored::Stored;

/// A proxy before each server of a world.
#[derive(Debug)]
pub struct Proxies {
    pub each: Vec<Proxy>,
    place: Place,
}

/// Where behind its servers a world is.
#[derive(Debug)]
enum Place {
    Chroot(String),
    World(World),
    Stored(Stored),
}

impl Proxies {
    pub fn before(world: &World) -> Self {
        let count = world.servers().len();
        Self {
            each: (0..count)
                .map(|server| world.proxy_before(server))
                .collect(),
            place: Place::World(world.clone()),
        }
    }

    pub fn before_servers(servers: &[SocketAddr], chroot: &str) -> Self {
        Self {
            each: servers
                .iter()
                .map(|server| Proxy::before(*server))
                .collect(),
            place: Place::Chroot(chroot.to_owned()),
        }
    }

    /// Before the server of a store that is none of a world.
    pub fn before_stored(stored: &Stored) -> Self {
        Self {
            each: vec![Proxy::before_store(stored.server(), stored.protocol())],
            place: Place::Stored(stored.clone()),
        }
    }

    /// Leads new connections to another server.
    pub fn lead_to(&self, server: SocketAddr) {
        self.each.iter().for_each(|proxy| proxy.lead_to(server));
    }

    /// The world's connect string, by way of the proxies.
    pub fn connect_string(&self) -> String {
        let hosts: Vec<SocketAddr> = self.each.iter().map(Proxy::address).collect();
        match &self.place {
            Place::World(world) => world.connect_string_at(&hosts),
            Place::Stored(stored) => stored.at(hosts[0]),
            Place::Chroot(chroot) => {
                let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
                format!("{}{chroot}", hosts.join(","))
            }
        }
    }

    pub async fn cut(&self, end: End) -> usize {
        // All at once: one after the other could cut a client twice, after it has reconnected
        // through a later proxy.
        let counts = join_all(self.each.iter().map(|proxy| proxy.cut(end))).await;
        counts.iter().sum()
    }

    /// When a client was last answered anything but a ping; 0 if none was.
    pub fn answered(&self) -> Nanos {
        self.each.iter().map(Proxy::answered).max().unwrap_or(0)
    }

    pub fn black_hole(&self, way: Way) {
        self.each.iter().for_each(|proxy| proxy.black_hole(way));
    }

    pub fn heal(&self) {
        self.each.iter().for_each(Proxy::heal);
    }

    pub fn delay(&self, way: Way, delay: Duration) {
        self.each.iter().for_each(|proxy| proxy.delay(way, delay));
    }

    pub async fn refuse(&mut self) {
        for proxy in &mut self.each {
            proxy.refuse().await;
        }
    }

    pub async fn accept(&mut self) {
        for proxy in &mut self.each {
            proxy.accept().await;
        }
    }
}
