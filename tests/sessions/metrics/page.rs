//! The page that Prometheus scrapes, and what stands in it; and recorders of whose pages no other
//! case knows.

use std::collections::BTreeMap;
use std::future::Future;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::runtime::{Builder, Runtime};
use tokio::task::spawn_blocking;

use testbench::World;

/// The values of a page, by series.
#[derive(Debug)]
pub(crate) struct Page(BTreeMap<String, f64>);

impl Page {
    pub(crate) fn parse(text: &str) -> Self {
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let values = lines.map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            (
                series.to_owned(),
                value.parse().unwrap_or_else(|_| panic!("{line}")),
            )
        });
        Self(values.collect())
    }

    /// The sum over all series of this metric that have all these labels: `class="orders"`.
    pub(crate) fn sum(&self, metric: &str, labels: &[&str]) -> f64 {
        let is_of = |series: &str| {
            let (name, has) = series.split_once('{').unwrap_or((series, ""));
            name == metric && labels.iter().all(|label| has.contains(label))
        };
        self.0
            .iter()
            .filter(|(series, _)| is_of(series))
            .map(|(_, value)| value)
            .sum()
    }

    /// All series; the parts of one histogram are one.
    pub(crate) fn series(&self) -> Vec<String> {
        let mut all: Vec<String> = self.0.keys().map(|series| whole(series)).collect();
        all.sort();
        all.dedup();
        all
    }
}

/// A series without what tells the parts of a histogram apart.
fn whole(series: &str) -> String {
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let part = ["_bucket", "_count", "_sum"]
        .iter()
        .find_map(|part| name.strip_suffix(part));
    let labels = labels.trim_end_matches('}').split(',');
    let labels =
        labels.filter(|label| !label.starts_with("le=") && !label.starts_with("quantile="));
    format!(
        "{}{{{}}}",
        part.unwrap_or(name),
        labels.collect::<Vec<_>>().join(",")
    )
}

/// The counts of one recorder.
#[derive(Clone)]
pub(crate) struct Meter {
    handle: PrometheusHandle,
    labels: Vec<String>,
}

impl Meter {
    /// What is counted of these only.
    pub(crate) fn of(&self, class: &str, kind: &str) -> Self {
        let labels = vec![format!("class=\"{class}\""), format!("kind=\"{kind}\"")];
        Self {
            labels,
            ..self.clone()
        }
    }

    pub(crate) fn page(&self) -> Page {
        Page::parse(&self.handle.render())
    }

    /// A gauge, a counter or a part of a histogram, by its name without `lockkeeper_`.
    pub(crate) fn value(&self, metric: &str) -> f64 {
        let labels: Vec<&str> = self.labels.iter().map(String::as_str).collect();
        self.page().sum(&format!("lockkeeper_{metric}"), &labels)
    }

    /// How many were lost for this reason.
    pub(crate) fn lost(&self, reason: &str) -> f64 {
        let mut labels: Vec<&str> = self.labels.iter().map(String::as_str).collect();
        let reason = format!("reason=\"{reason}\"");
        labels.push(&reason);
        self.page().sum("lockkeeper_lost_total", &labels)
    }

    /// Calls under way, holds, calls that came back with a guard, and holds that have ended.
    pub(crate) fn four(&self) -> [f64; 4] {
        [
            "waiting",
            "held",
            "wait_seconds_count",
            "hold_seconds_count",
        ]
        .map(|metric| self.value(metric))
    }
}

/// Runs something in a thread with a recorder of its own.
pub(crate) async fn alone(run: impl FnOnce(Meter) + Send + 'static) {
    let thread = spawn_blocking(|| {
        let recorder = PrometheusBuilder::new()
            .set_buckets(&[1.0])
            .unwrap()
            .build_recorder();
        let (handle, labels) = (recorder.handle(), Vec::new());
        let _recording = ::metrics::set_default_local_recorder(&recorder);
        run(Meter { handle, labels });
    });
    thread.await.unwrap();
}

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The same with a runtime that never leaves the thread.
pub(crate) async fn metered<F: Future<Output = ()>>(
    world: World,
    case: impl FnOnce(World, Meter) -> F + Send + 'static,
) {
    alone(|meter| runtime().block_on(case(world, meter))).await;
}
