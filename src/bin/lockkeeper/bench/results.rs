//! What came out: medians of the rounds, ratios of each round, and how they are shown. (pure)

use serde_json::{Value, json};

use super::sample::{HandOver, Sample};

/// Everything that was measured.
pub(crate) struct Measured {
    pub(crate) uncontended: Times,
    pub(crate) crowds: Vec<Crowd>,
    pub(crate) independent: Rates,
    locks: usize,
    /// Of how many waiters, and how many bytes each.
    pub(crate) memory: Option<(usize, Option<f64>)>,
}

/// Times of both sides: the mean of each round, and all single ones.
pub(crate) struct Times {
    ours: Vec<f64>,
    floor: Vec<f64>,
    all_ours: Sample,
    all_floor: Sample,
}

/// Hand-overs at one size.
pub(crate) struct Crowd {
    pub(crate) waiters: usize,
    pub(crate) bytes_per_waiter: Option<f64>,
    times: Times,
    enqueue_ms: Vec<f64>,
    floor_enqueue_ms: Vec<f64>,
}

/// Locks in a second, of each round.
#[derive(Default)]
pub(crate) struct Rates {
    ours: Vec<f64>,
    floor: Vec<f64>,
}

impl Measured {
    pub(crate) fn new(locks: usize, crowds: &[usize]) -> Self {
        Self {
            uncontended: Times::new(),
            crowds: crowds.iter().map(|waiters| Crowd::new(*waiters)).collect(),
            independent: Rates::default(),
            locks,
            memory: None,
        }
    }

    pub(crate) const HEAD: [&str; 9] = [
        "WORKLOAD",
        "LOCKKEEPER",
        "MIN..MAX",
        "P50",
        "P99",
        "FLOOR",
        "MIN..MAX",
        "RATIO",
        "MIN..MAX",
    ];

    pub(crate) fn rows(&self) -> Vec<[String; 9]> {
        let mut rows = vec![self.uncontended.row("lock + release, us".into())];
        for crowd in &self.crowds {
            let name = format!("hand-over at {}, us", crowd.waiters);
            rows.push(crowd.times.row(name));
        }
        rows.push(
            self.independent
                .row(format!("{} locks at once, per s", self.locks)),
        );
        let bytes = self.memory.and_then(|(_, bytes)| bytes);
        let mut memory: [String; 9] = std::array::from_fn(|_| "-".into());
        memory[0] = "memory per waiter, bytes".into();
        memory[1] = bytes.map_or_else(|| "-".into(), |bytes| format!("{bytes:.0}"));
        rows.push(memory);
        rows
    }

    pub(crate) fn object(&self) -> Value {
        let crowds = self.crowds.iter().map(|crowd| {
            let mut object = crowd.times.object();
            object["waiters"] = json!(crowd.waiters);
            object["enqueue_ms"] = tenths(Spread::of(&crowd.enqueue_ms).median);
            object["floor_enqueue_ms"] = tenths(Spread::of(&crowd.floor_enqueue_ms).median);
            object
        });
        let mut independent = self.independent.object();
        independent["locks"] = json!(self.locks);
        let (waiters, bytes) = self.memory.unzip();
        json!({
            "rounds": self.independent.ours.len(),
            "uncontended": self.uncontended.object(),
            "hand_over": crowds.collect::<Vec<_>>(),
            "independent": independent,
            "memory": { "waiters": waiters, "bytes_per_waiter": bytes.flatten().map(f64::round) },
        })
    }
}

impl Times {
    fn new() -> Self {
        Self {
            ours: Vec::new(),
            floor: Vec::new(),
            all_ours: Sample::new(),
            all_floor: Sample::new(),
        }
    }

    /// One round of both.
    pub(crate) fn add(&mut self, ours: &Sample, floor: &Sample) {
        self.ours.push(ours.mean_us());
        self.floor.push(floor.mean_us());
        self.all_ours.merge(ours);
        self.all_floor.merge(floor);
    }

    fn row(&self, name: String) -> [String; 9] {
        let (ours, floor) = (Spread::of(&self.ours), Spread::of(&self.floor));
        let ratio = ratio(&self.ours, &self.floor);
        let percentile = |percent| format!("{:.0}", self.all_ours.percentile_us(percent));
        [
            name,
            format!("{:.0}", ours.median),
            format!("{:.0}..{:.0}", ours.min, ours.max),
            percentile(50.0),
            percentile(99.0),
            format!("{:.0}", floor.median),
            format!("{:.0}..{:.0}", floor.min, floor.max),
            format!("{:.2}", ratio.median),
            format!("{:.2}..{:.2}", ratio.min, ratio.max),
        ]
    }

    fn object(&self) -> Value {
        let (ours, floor) = (Spread::of(&self.ours), Spread::of(&self.floor));
        let ratio = ratio(&self.ours, &self.floor);
        json!({
            "mean_us": tenths(ours.median),
            "min_us": tenths(ours.min),
            "max_us": tenths(ours.max),
            "p50_us": tenths(self.all_ours.percentile_us(50.0)),
            "p99_us": tenths(self.all_ours.percentile_us(99.0)),
            "shortest_us": tenths(self.all_ours.min_us()),
            "longest_us": tenths(self.all_ours.max_us()),
            "floor_us": tenths(floor.median),
            "floor_min_us": tenths(floor.min),
            "floor_max_us": tenths(floor.max),
            "floor_p50_us": tenths(self.all_floor.percentile_us(50.0)),
            "floor_p99_us": tenths(self.all_floor.percentile_us(99.0)),
            "floor_shortest_us": tenths(self.all_floor.min_us()),
            "floor_longest_us": tenths(self.all_floor.max_us()),
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
            bytes_per_waiter: None,
            times: Times::new(),
            enqueue_ms: Vec::new(),
            floor_enqueue_ms: Vec::new(),
        }
    }

    /// One round of both.
    pub(crate) fn add(&mut self, ours: &HandOver, floor: &HandOver) {
        self.times.add(&ours.sample, &floor.sample);
        self.enqueue_ms.push(ours.enqueue.as_secs_f64() * 1e3);
        self.floor_enqueue_ms
            .push(floor.enqueue.as_secs_f64() * 1e3);
        self.bytes_per_waiter = ours.bytes_per_waiter;
    }
}

impl Rates {
    /// One round of both.
    pub(crate) fn add(&mut self, ours: f64, floor: f64) {
        self.ours.push(ours);
        self.floor.push(floor);
    }

    fn row(&self, name: String) -> [String; 9] {
        let (ours, floor) = (Spread::of(&self.ours), Spread::of(&self.floor));
        let ratio = ratio(&self.ours, &self.floor);
        [
            name,
            format!("{:.0}", ours.median),
            format!("{:.0}..{:.0}", ours.min, ours.max),
            "-".into(),
            "-".into(),
            format!("{:.0}", floor.median),
            format!("{:.0}..{:.0}", floor.min, floor.max),
            format!("{:.2}", ratio.median),
            format!("{:.2}..{:.2}", ratio.min, ratio.max),
        ]
    }

    fn object(&self) -> Value {
        let (ours, floor) = (Spread::of(&self.ours), Spread::of(&self.floor));
        let ratio = ratio(&self.ours, &self.floor);
        json!({
            "locks_per_s": tenths(ours.median),
            "min_per_s": tenths(ours.min),
            "max_per_s": tenths(ours.max),
            "floor_per_s": tenths(floor.median),
            "floor_min_per_s": tenths(floor.min),
            "floor_max_per_s": tenths(floor.max),
            "ratio": thousandths(ratio.median),
            "ratio_min": thousandths(ratio.min),
            "ratio_max": thousandths(ratio.max),
        })
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
        let middle = rounds.len() / 2;
        let (Some(min), Some(max)) = (rounds.first(), rounds.last()) else {
            return Self::default();
        };
        let median = if rounds.len() % 2 == 1 {
            rounds[middle]
        } else {
            rounds[middle - 1].midpoint(rounds[middle])
        };
        Self {
            median,
            min: *min,
            max: *max,
        }
    }
}

/// Each round by itself, so that what slows both down for a while is not in it.
fn ratio(ours: &[f64], floor: &[f64]) -> Spread {
    let ratios = ours.iter().zip(floor).map(|(ours, floor)| ours / floor);
    Spread::of(&ratios.collect::<Vec<_>>())
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
        let ratio = ratio(&[100.0, 2000.0, 110.0], &[100.0, 1000.0, 100.0]);

        assert_eq!((ratio.min, ratio.median, ratio.max), (1.0, 1.1, 2.0));
    }
}
