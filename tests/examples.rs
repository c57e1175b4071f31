//! The examples that have no module of their own to be tried in: they do what they say.

use testbench::{World, case};

#[path = "../examples/fair_lock.rs"]
#[allow(dead_code, reason = "its main")]
mod fair_lock;
#[path = "../examples/fencing.rs"]
#[allow(dead_code, reason = "its main")]
mod fencing;

#[case]
async fn the_example_of_a_service_works_off_its_requests_in_order(world: World) {
    let tokens = fair_lock::serve(&world.connect_string()).await.unwrap();

    assert_eq!(tokens.len(), 30);
    assert!(tokens.is_sorted_by(|before, after| before < after));
}

#[case]
async fn the_example_of_fencing_refuses_the_late_write(world: World) {
    let page = fencing::publish(&world.connect_string()).await.unwrap();

    assert_eq!(page, "page of the second editor");
}
