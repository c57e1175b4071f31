//! The example of a sale, on each store.

use std::sync::Arc;

use crate::bed::Bed;

#[path = "../../examples/flash_sale.rs"]
#[allow(dead_code, reason = "its main, and what it does without a store")]
mod example;

pub use example::Counted;

pub const CASES: &[crate::bed::Case] =
    crate::cases![if |kind| kind != "memory"; the_example_of_a_sale_sells_the_article_once];

async fn the_example_of_a_sale_sells_the_article_once(bed: Arc<Bed>, _name: String) {
    let sale = example::on_plain_lock(&bed.url().await).await.unwrap();

    // For the table of docs/choosing.md.
    println!("{sale}");
    assert_eq!((sale.winners, sale.refused), (1, 19), "{sale}");
    // Each buyer acquires and releases.
    assert!(sale.asked >= Some(40), "{sale}");
}
