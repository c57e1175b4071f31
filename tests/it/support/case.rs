//! A case: a name, the servers that it is for, and an async function that panics when the claim does not hold.
//!
//! It knows nothing of how cases are run.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::World;

/// The future of one run of a case.
pub(crate) type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The servers that a case is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// Every server: the rule. The same claim must hold on all of them.
    Both,
    /// It pulls a hook of the embedded server.
    Embedded,
    /// It needs the real ZooKeeper.
    Real,
}

/// One registered case.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) place: Where,
    /// The feature without which the case is not built.
    pub(crate) feature: Option<&'static str>,
    pub(crate) limit: Duration,
    pub(crate) run: fn(World) -> Run,
}

impl Case {
    /// What `cases.txt` says of it: `tag name [feature]`.
    pub(crate) fn line(&self) -> String {
        let tag = match self.place {
            Where::Both => "both",
            Where::Embedded => "embedded",
            Where::Real => "real",
        };
        let feature = self
            .feature
            .map(|feature| format!(" {feature}"))
            .unwrap_or_default();
        format!("{tag} {}{feature}", self.name)
    }
}

/// Registers the cases of a module: makes its `cases()`.
///
/// `cases! { both: a, b within 120; embedded: c; real: d; }`, where `within` is a limit in seconds instead of 60.
/// A module that is only built with a feature says so first: `cases! { feature: "cli"; both: a; }`.
macro_rules! cases {
    (feature: $feature:literal; $($tags:tt)+) => { cases! { @build Some($feature); $($tags)+ } };
    (@build $feature:expr; $($tag:ident: $($name:ident $(within $seconds:literal)?),+ $(,)?);+ $(;)?) => {
        pub(crate) fn cases() -> Vec<$crate::support::case::Case> {
            let module = module_path!();
            let module = module.split_once("::").map_or(module, |(_, inner)| inner);
            vec![$($($crate::support::case::Case {
                name: format!("{module}::{}", stringify!($name)),
                place: cases!(@place $tag),
                feature: $feature,
                limit: std::time::Duration::from_secs(*[$($seconds,)? 60].first().unwrap()),
                run: |world| Box::pin($name(world)),
            }),+),+]
        }
    };
    (@place both) => { $crate::support::case::Where::Both };
    (@place embedded) => { $crate::support::case::Where::Embedded };
    (@place real) => { $crate::support::case::Where::Real };
    ($($tags:tt)+) => { cases! { @build None; $($tags)+ } };
}
