//! The links between the members of a private ensemble: a member that is cut off is no longer a
//! part of it.
//!
//! On real servers only.

use std::time::Instant;

use testbench::ensemble::{Cut, Ensemble};
use testbench::{World, case};

#[case(real, within = 120)]
async fn a_leader_is_cut_off_and_joined_again(_world: World) {
    let ensemble = Ensemble::start(5).await;
    for cut in [Cut::OthersSeeIt, Cut::Silent] {
        let leader = ensemble.leader().await;
        let began = Instant::now();

        ensemble.cut_off(leader, cut);
        let next = ensemble.leader_but(Some(leader)).await;

        println!("{cut:?}: another leader after {:?}", began.elapsed());
        assert_ne!(next, leader);
        ensemble.gives_up(leader).await;
        ensemble.join(leader).await;
        ensemble.serves().await;
    }
}

#[case(real, within = 120)]
async fn a_follower_is_cut_off_and_joined_again(_world: World) {
    // A second is too little: a busy machine may stop the leader for so long.
    let ensemble = Ensemble::start(25).await;
    let leader = ensemble.leader().await;
    let follower = (leader + 1) % ensemble.count();
    let began = Instant::now();

    ensemble.cut_off(follower, Cut::Silent);
    ensemble.gives_up(follower).await;

    println!("the follower gives up after {:?}", began.elapsed());
    assert_eq!(ensemble.leader().await, leader, "the others go on");
    ensemble.join(follower).await;
    ensemble.serves().await;
}
