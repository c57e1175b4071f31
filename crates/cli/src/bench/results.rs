//! What came out: medians of the rounds, ratios of each round, and how they are shown. (pure)

use serde_json::{Value, json};

use super::ours::LINGERING_TASKS;
use super::sample::{HandOver, Sample};

const COLUMNS: usize = 11;

/// Everything that was measured.
pub(crate) struct Measured {
    pub(crate) uncontended: Times,
    pub(crate) crowds: Vec<Crowd>,
    /// The size of the largest of them.
    pub(crate) largest: usize,
    /// A lock while that many wait for another one. Its baseline is the same lock alone.
    pub(crate) beside: Times,
    pub(crate) independent: Rates,
    /// Locks in a second, of each round.
    pub(crate) linger: Vec<f64>,
    locks: usize,
    /// Bytes of each waiter in the largest crowd.
    pub(crate) memory: Option<f64>,
}

/// Microseconds: the mean of each round, and all single times.
pub(crate) struct Times {
    means: Pair,
    ours: Sample,
    baseline: Sample,
}

/// Hand-overs at one size.
pub(crate) struct Crowd {
    pub(crate) waiters: usize,
    times: Times,
    enqueue_ms: Pair,
}

/// Locks in a second.
#[derive(Default)]
pub(crate) struct Rates(Pair);

impl Measured {
    pub(crate) const HEAD: [&str; COLUMNS] = [
        "WORKLOAD",
        "LOCKKEEPER",
        "MIN..MAX",
        "P50",
        "P99",
        "BASELINE",
        "MIN..MAX",
        "P50",
        "P99",
        "RATIO",
        "MIN..MAX",
    ];

    pub(crate) fn new(locks: usize, crowds: &[usize]) -> Self {
        Self {
            uncontended: Times::new(),
            crowds: crowds.iter().map(|waiters| Crowd::new(*waiters)).collect(),
            largest: crowds.iter().copied().max().unwrap_or_default(),
            beside: Times::new(),
            independent: Rates::default(),
            linger: Vec::new(),
            locks,
            memory: None,
        }
    }

    pub(crate) fn rows(&self) -> Vec<[String; COLUMNS]> {
        let mut rows = vec![self.uncontended.row("lock + release, us".into())];
        for crowd in &self.crowds {
            let name = format!("hand-over at {}, us", crowd.waiters);
            rows.push(crowd.times.row(name));
        }
        let name = format!("lock + release beside {}, us", self.largest);
        rows.push(self.beside.row(name));
        let name = format!("{} locks at once, per s", self.locks);
        rows.push(self.independent.0.row(name, None));
        let Spread { median, min, max } = Spread::of(&self.linger);
        let mut linger = dashes("one lock that lingers, per s");
        linger[1] = format!("{median:.0}");
        linger[2] = format!("{min:.0}..{max:.0}");
        rows.push(linger);
        let mut memory = dashes("memory per waiter, bytes");
        if let Some(bytes) = self.memory {
            memory[1] = format!("{bytes:.0}");
        }
        rows.push(memory);
        rows
    }

    pub(crate) fn object(&self) -> Value {
        let crowds: Vec<Value> = self.crowds.iter().map(Crowd::object).collect();
        let mut independent = self.independent.object();
        independent["locks"] = json!(self.locks);
        let mut beside = self.beside.object();
        beside["waiters"] = json!(self.largest);
        let linger = Spread::of(&self.linger);
        json!({
            "rounds": self.independent.0.ours.len(),
            "uncontended": self.uncontended.object(),
            "hand_over": crowds,
            "beside": beside,
            "independent": independent,
            "linger": {
                "tasks": LINGERING_TASKS,
                "locks_per_s": linger.median.round(),
                "min_per_s": linger.min.round(),
                "max_per_s": linger.max.round(),
            },
            "memory": { "waiters": self.largest, "bytes_per_waiter": self.memory.map(f64::round) },
        })
    }
}

impl Times {
    fn new() -> Self {
        Self {
            means: Pair::default(),
            ours: Sample::new(),
            baseline: Sample::new(),
        }
    }

    /// One round of both.
    pub(crate) fn add(&mut self, ours: &Sample, baseline: &Sample) {
        self.means.add(ours.mean_us(), baseline.mean_us());
        self.ours.merge(ours);
        self.baseline.merge(baseline);
    }

    fn row(&self, name: String) -> [String; COLUMNS] {
        self.means.row(name, Some([&self.ours, &self.baseline]))
    }

    fn object(&self) -> Value {
        let [ours, baseline, ratio] = self.means.spreads();
        json!({
            "mean_us": tenths(ours.median),
            "min_us": tenths(ours.min),
            "max_us": tenths(ours.max),
            "p50_us": tenths(self.ours.percentile_us(50.0)),
            "p99_us": tenths(self.ours.percentile_us(99.0)),
            "shortest_us": tenths(self.ours.min_us()),
            "longest_us": tenths(self.ours.max_us()),
            "count": self.ours.count(),
            "baseline_us": tenths(baseline.median),
            "baseline_min_us": tenths(baseline.min),
            "baseline_max_us": tenths(baseline.max),
            "baseline_p50_us": tenths(self.baseline.percentile_us(50.0)),
            "baseline_p99_us": tenths(self.baseline.percentile_us(99.0)),
            "ratio": thousandths(ratio.median),
            "ratio_min": thousandths(ratio.min),
            "ratio_max": thousandths(ratio.max),
        })
    }
}

impl Crowd {
    pub(crate) fn new(waiters: usize) -> Self {
        Self {
            waiters,
            times: Times::new(),
            enqueue_ms: Pair::default(),
        }
    }

    /// One round of both.
    pub(crate) fn add(&mut self, ours: &HandOver, baseline: &HandOver) {
        self.times.add(&ours.sample, &baseline.sample);
        let [ours, baseline] = [ours, baseline].map(|side| side.enqueue.as_secs_f64() * 1e3);
        self.enqueue_ms.add(ours, baseline);
    }

    fn object(&self) -> Value {
        let [ours, baseline, _] = self.enqueue_ms.spreads();
        let mut object = self.times.object();
        object["waiters"] = json!(self.waiters);
        object["enqueue_ms"] = tenths(ours.median);
        object["baseline_enqueue_ms"] = tenths(baseline.median);
        object
    }
}

impl Rates {
    /// One round of both.
    pub(crate) fn add(&mut self, ours: f64, baseline: f64) {
        self.0.add(ours, baseline);
    }

    fn object(&self) -> Value {
        let [ours, baseline, ratio] = self.0.spreads();
        json!({
            "locks_per_s": tenths(ours.median),
            "min_per_s": tenths(ours.min),
            "max_per_s": tenths(ours.max),
            "baseline_per_s": tenths(baseline.median),
            "baseline_min_per_s": tenths(baseline.min),
            "baseline_max_per_s": tenths(baseline.max),
            "ratio": thousandths(ratio.median),
            "ratio_min": thousandths(ratio.min),
            "ratio_max": thousandths(ratio.max),
        })
    }
}

/// One number of each side from each round.
#[derive(Default)]
struct Pair {
    ours: Vec<f64>,
    baseline: Vec<f64>,
}

impl Pair {
    fn add(&mut self, ours: f64, baseline: f64) {
        self.ours.push(ours);
        self.baseline.push(baseline);
    }

    /// Ours, the baseline's, and the ratio: that of each round by itself, so that what slows both
    /// down for a while is not in it.
    fn spreads(&self) -> [Spread; 3] {
        let ratios = self.ours.iter().zip(&self.baseline);
        let ratios: Vec<f64> = ratios.map(|(ours, baseline)| ours / baseline).collect();
        [&self.ours, &self.baseline, &ratios].map(|rounds| Spread::of(rounds))
    }

    fn row(&self, name: String, all: Option<[&Sample; 2]>) -> [String; COLUMNS] {
        let [ours, baseline, ratio] = self.spreads();
        let percentile = |side: usize, percent| {
            let sample = all.map(|all| all[side].percentile_us(percent));
            sample.map_or_else(dash, |us| format!("{us:.0}"))
        };
        [
            name,
            format!("{:.0}", ours.median),
            format!("{:.0}..{:.0}", ours.min, ours.max),
            percentile(0, 50.0),
            percentile(0, 99.0),
            format!("{:.0}", baseline.median),
            format!("{:.0}..{:.0}", baseline.min, baseline.max),
            percentile(1, 50.0),
            percentile(1, 99.0),
            format!("{:.2}", ratio.median),
            format!("{:.2}..{:.2}", ratio.min, ratio.max),
        ]
    }
}

/// The middle of what the rounds gave, and how far they lie apart. All zero without a round.
#[derive(Debug, Default, PartialEq)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(rounds: &[f64]) -> Self {
        let mut rounds = rounds.to_vec();
        rounds.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (rounds.first(), rounds.last()) else {
            return Self::default();
        };
        let (below, above) = ((rounds.len() - 1) / 2, rounds.len() / 2);
        Self {
            median: rounds[below].midpoint(rounds[above]),
            min: *min,
            max: *max,
        }
    }
}

fn dashes(name: &str) -> [String; COLUMNS] {
    let mut row = std::array::from_fn(|_| dash());
    row[0] = name.into();
    row
}

fn dash() -> String {
    "-".to_owned()
}

fn tenths(value: f64) -> Value {
    json!((value * 10.0).round() / 10.0)
}

fn thousandths(value: f64) -> Value {
    json!((value * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_and_the_bounds() {
        let spread = |rounds: &[f64]| {
            let Spread { median, min, max } = Spread::of(rounds);
            (median, min, max)
        };

        assert_eq!(spread(&[]), (0.0, 0.0, 0.0));
        assert_eq!(spread(&[7.0]), (7.0, 7.0, 7.0));
        assert_eq!(spread(&[9.0, 1.0, 2.0]), (2.0, 1.0, 9.0));
        assert_eq!(spread(&[9.0, 1.0, 2.0, 4.0]), (3.0, 1.0, 9.0));
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let mut pair = Pair::default();
        for (ours, baseline) in [(100.0, 100.0), (2000.0, 1000.0), (150.0, 100.0)] {
            pair.add(ours, baseline);
        }

        let [_, _, ratio] = pair.spreads();

        assert_eq!((ratio.min, ratio.median, ratio.max), (1.0, 1.5, 2.0));
    }
}
