//! The options that all recipes have in common, as a macro: the same words and the same code.

/// The options of a recipe, which has these ways into queues.
macro_rules! option_methods {
    ($recipe:ident, |$lock:ident| $acquirers:expr) => {
        impl $recipe {
            /// Sets a short text, of at most 1024 bytes, for example the work under the lock. It is
            /// written into each ticket, and [`Keeper::queue`](crate::Keeper::queue) and
            /// `lockkeeper queue` show it. A lock call with a longer text is refused.
            #[must_use]
            pub fn with_label(self, label: impl Into<String>) -> Self {
                let label = label.into();
                self.with(|acquirer| acquirer.queue.line().label = Some(label.clone()))
            }

            /// Sets the id of the trace of the work under the lock, of at most 1024 bytes: the
            /// trace id of W3C's `traceparent`, for example. It is written into each ticket, and
            /// [`Keeper::queue`](crate::Keeper::queue) shows it. A waiter right behind our ticket
            /// has it in its own trace, at no cost: as the field `holder_trace` of its span
            /// `acquire`, and of the event "waits for" (level debug). A lock call with a longer id
            /// is refused.
            #[must_use]
            pub fn with_trace_id(self, trace_id: impl Into<String>) -> Self {
                let trace_id = trace_id.into();
                self.with(|acquirer| acquirer.queue.line().trace = Some(trace_id.clone()))
            }

            /// Sets the class by which the feature `metrics` counts waits, holds and losses;
            /// default `"default"`. Without that feature it has no effect. A class is a sort of
            /// work, not a lock: `"orders"` for all of `orders/1`, `orders/2`, ... Each class has
            /// its own time series, so it is part of the program's text. Readers and writers are
            /// counted apart. [The guide](crate::guide::metrics) lists the metrics.
            #[must_use]
            pub fn with_class(self, class: &'static str) -> Self {
                self.with(|acquirer| acquirer.set_class(class))
            }

            /// Whether calls join the queue again, at its end, if the session ends while they wait;
            /// default `true`. With `false` they fail with
            /// [`is_session_over`](crate::Error::is_session_over).
            #[must_use]
            pub fn with_rejoin(self, rejoins: bool) -> Self {
                self.with(|acquirer| acquirer.rejoins = rejoins)
            }

            fn with(mut self, set: impl Fn(&mut $crate::recipes::acquire::Acquirer)) -> Self {
                let $lock = &mut self;
                $acquirers.into_iter().for_each(set);
                self
            }
        }
    };
}

pub(super) use option_methods;
