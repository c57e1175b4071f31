//! A keeper with the options of most cases, and the children of a lock's directory.

use lockkeeper::Keeper;
use zookeeper_client::Error;

use crate::World;
use crate::stranger::Stranger;

/// A keeper with the default options.
pub async fn keeper(world: &World) -> Keeper {
    Keeper::connect(world.connect_string()).await.unwrap()
}

/// The children of a lock's directory; none if it is gone.
pub async fn children(stranger: &Stranger, lock: &str) -> Vec<String> {
    stranger.catch_up().await.unwrap();
    match stranger.list_children(&format!("/locks/{lock}")).await {
        Err(Error::NoNode) => Vec::new(),
        listed => listed.unwrap(),
    }
}
