//! Checks that the examples without a test module of their own work.

use testbench::{World, case};

#[path = "../examples/fair_lock.rs"]
#[allow(dead_code, reason = "its main")]
mod fair_lock;
#[path = "../examples/fencing.rs"]
#[allow(dead_code, reason = "its main")]
mod fencing;
#[path = "../examples/flash_sale.rs"]
#[allow(dead_code, reason = "its main, and stores that are not here")]
mod flash_sale;

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

#[case(embedded)]
async fn the_example_of_a_sale_sells_the_article_once_under_a_lock_and_more_often_without(
    _world: World,
) {
    let unlocked = flash_sale::without_lock().await.unwrap();
    let inside = flash_sale::inside_services().await.unwrap();
    let locked = flash_sale::on_embedded_server().await.unwrap();

    assert_eq!((unlocked.winners, unlocked.refused), (20, 0), "{unlocked}");
    assert_eq!((inside.winners, inside.refused), (2, 18), "{inside}");
    assert_eq!((locked.winners, locked.refused), (1, 19), "{locked}");
    // A join is two requests at least and a release one.
    assert!(locked.asked >= Some(60), "{locked}");
}

#[case]
async fn the_example_of_a_sale_sells_the_article_once_on_each_store(world: World) {
    let locked = flash_sale::on_engine(&world.connect_string())
        .await
        .unwrap();

    println!("{locked}");
    assert_eq!((locked.winners, locked.refused), (1, 19), "{locked}");
}
