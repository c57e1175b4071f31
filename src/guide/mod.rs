//! The guides: how to use Lockkeeper, how to run it, and what it promises. Start with
//! [`guarantees`] and [`recipes`].
//!
//! They are the pages of `docs/` in the source. Pictures are only there.
//!
//! # Files
//!
//! Some links lead to other files of the source, and so here: `CHANGELOG.md`, `benches/README.md`,
//! `docs/ui.md`, `docs/speed.md` and its tables in `docs/speed/`.
//
// A page links others by paths, which lead to nothing here. So its links are references, and
// `links.md` stands before each page: the first definition of a reference counts. The module is
// only built for the documentation.

macro_rules! pages {
    ($($name:ident: $file:literal $(needs $feature:literal)?),+ $(,)?) => {$(
        // Its examples cannot be built without it.
        $(#[cfg(any(not(doctest), feature = $feature))])?
        #[doc = include_str!("links.md")]
        #[doc = include_str!(concat!("../../docs/", $file))]
        pub mod $name {}
    )+};
}

pages! {
    choosing: "choosing.md" needs "redis",
    coming_from: "coming-from.md",
    engines: "engines.md",
    guarantees: "guarantees.md",
    metrics: "metrics.md" needs "metrics",
    operating: "operating.md" needs "embedded",
    recipes: "recipes.md",
    scale: "scale.md",
    security: "security.md",
    sharing: "sharing.md",
    shell: "shell.md",
    tool: "tool.md",
    versions: "versions.md",
}
