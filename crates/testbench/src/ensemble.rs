//! An ensemble of one case, whose members can each be cut off from the others and joined again.
//!
//! Each pair of members connects through its own relays, for the quorum and for elections. So every
//! link between two members can be cut without touching the clients' links. It never touches the
//! servers that cases share.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;
use zookeeper_client::Client;

use super::proxy::{End, Proxy, Way};
use super::zookeeper::{Ports, Servers};
use super::{eventually, ports, words};

/// The way in which the others notice a member that is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Both sides see only silence.
    Silent,
    /// The others see their connections to it end at once. The member itself sees silence, so it
    /// goes on for as long as it may.
    OthersSeeIt,
}

/// A private ensemble with links that can be cut.
pub struct Ensemble {
    servers: Option<Servers>,
    links: Vec<Link>,
    count: usize,
}

/// The way from one member to another.
struct Link {
    from: usize,
    to: usize,
    quorum: Proxy,
    election: Proxy,
}

impl Link {
    fn proxies(&self) -> [&Proxy; 2] {
        [&self.quorum, &self.election]
    }
}

impl Ensemble {
    /// Starts three members. A tick is 200 ms. A silent member is given up after `sync_limit`
    /// ticks. Session timeouts of 400 ms and more are granted.
    pub async fn start(sync_limit: usize) -> Self {
        const COUNT: usize = 3;
        let links = Arc::new(Mutex::new(Vec::new()));
        let made = links.clone();
        let start = move || {
            // The last line of a setting counts. Who finds no leader looks for another one soon.
            let more = format!("initLimit=10\nsyncLimit={sync_limit}\n");
            Servers::start_linked(COUNT, &[], &more, |members| {
                let (links, views) = link(members)?;
                *made.lock().unwrap_or_else(PoisonError::into_inner) = links;
                Ok(views)
            })
        };
        let servers = tokio::task::spawn_blocking(start)
            .await
            .expect("the start ends")
            .unwrap_or_else(|why| panic!("{why}"));
        let links = std::mem::take(&mut *links.lock().unwrap_or_else(PoisonError::into_inner));
        Self {
            servers: Some(servers),
            links,
            count: COUNT,
        }
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers().addresses()
    }

    /// Its members, as a user would name them.
    pub fn connect_string(&self) -> String {
        let addresses = self.addresses();
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        hosts.join(",")
    }

    fn servers(&self) -> &Servers {
        self.servers.as_ref().expect("they run")
    }

    /// Runs a blocking call on the servers, off the threads of the runtime.
    pub async fn with<T: Send + 'static>(
        &mut self,
        act: impl FnOnce(&mut Servers) -> T + Send + 'static,
    ) -> T {
        let mut servers = self.servers.take().expect("they run");
        let (servers, value) = tokio::task::spawn_blocking(move || {
            let value = act(&mut servers);
            (servers, value)
        })
        .await
        .expect("nothing panics with the servers");
        self.servers = Some(servers);
        value
    }

    /// The member that leads, once there is one.
    pub async fn leader(&self) -> usize {
        self.leader_but(None).await
    }

    /// Waits for a leader other than this member. A leader that is cut off still calls itself
    /// leader for a while.
    pub async fn leader_but(&self, not: Option<usize>) -> usize {
        let addresses = self.addresses();
        let leader = || async {
            for (member, address) in addresses.iter().enumerate() {
                if Some(member) != not && mode(*address).await.as_deref() == Some("leader") {
                    return Some(member);
                }
            }
            None
        };
        eventually("there is a leader", Duration::from_secs(60), leader).await
    }

    /// Waits until each member gives out a session, which is a commit of the quorum. A member's own
    /// answer is not enough: it says that it serves until it notices that its leader was frozen or
    /// cut off.
    pub async fn serves(&self) {
        for address in self.addresses() {
            let server = address.to_string();
            let serves = || async {
                // A member that is still looking for a leader is silent.
                let session = timeout(Duration::from_secs(2), Client::connect(&server)).await;
                session.is_ok_and(|session| session.is_ok())
            };
            eventually("the member serves", Duration::from_secs(60), serves).await;
        }
    }

    /// Waits until a member serves no longer.
    pub async fn gives_up(&self, member: usize) {
        let address = self.addresses()[member];
        let gives_up = || async { mode(address).await.is_none() };
        eventually("the member gives up", Duration::from_secs(30), gives_up).await;
    }

    /// The links of a member with the others: those that it opens, and those that the others open
    /// to it.
    fn links_of(&self, member: usize) -> impl Iterator<Item = &Link> {
        self.links
            .iter()
            .filter(move |link| link.from == member || link.to == member)
    }

    /// Cuts a member off from the others.
    pub fn cut_off(&self, member: usize, cut: Cut) {
        for link in self.links_of(member) {
            for proxy in link.proxies() {
                proxy.black_hole(Way::Both);
                if cut == Cut::OthersSeeIt {
                    let other = if link.from == member {
                        Way::ToServer
                    } else {
                        Way::ToClient
                    };
                    proxy.end_towards(other);
                }
            }
        }
    }

    /// Joins it with the others again. Connections from before the cut are reset.
    pub async fn join(&self, member: usize) {
        for link in self.links_of(member) {
            for proxy in link.proxies() {
                proxy.cut(End::Rst).await;
                proxy.heal();
            }
        }
    }

    /// How many connections between members are open.
    pub fn connections(&self) -> usize {
        self.links
            .iter()
            .flat_map(Link::proxies)
            .map(Proxy::connections)
            .sum()
    }

    pub fn count(&self) -> usize {
        self.count
    }
}

/// What a server says that it is; None if it does not say so at once.
async fn mode(server: SocketAddr) -> Option<String> {
    let asked = tokio::task::spawn_blocking(move || words::ask(server, "srvr").ok());
    let answer = timeout(Duration::from_millis(500), asked).await.ok()?;
    words::mode(&answer.expect("the question ends")?).map(str::to_owned)
}

/// Makes the links between members that listen there, and says where each member finds the others.
fn link(members: &[Ports]) -> io::Result<(Vec<Link>, Vec<Vec<Ports>>)> {
    let count = members.len();
    let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // The listeners come first: each relay of elections tells where the way back is.
    let mut listeners: Vec<_> = ports::listen(count * count)?
        .into_iter()
        .map(Some)
        .collect();
    let elections: Vec<u16> = listeners
        .iter()
        .flatten()
        .map(|(port, _)| port.number)
        .collect();
    let (mut links, mut views) = (Vec::new(), vec![members.to_vec(); count]);
    for from in 0..count {
        for to in (0..count).filter(|to| *to != from) {
            let listener = listeners[from * count + to].take().expect("not used yet");
            let announced = elections[to * count + from];
            let election = Proxy::of_election(listener, at(members[to].election), announced)?;
            let quorum = Proxy::of_bytes(at(members[to].quorum))?;
            views[from][to].election = election.address().port();
            views[from][to].quorum = quorum.address().port();
            links.push(Link {
                from,
                to,
                quorum,
                election,
            });
        }
    }
    Ok((links, views))
}
