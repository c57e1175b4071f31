//! The machine that a run was made on, as far as the system tells, and how fast its disk keeps a
//! promise.

use std::fs::{File, read_to_string};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::results::Spread;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: f64,
    pub(crate) kernel: String,
    /// Of the folder where the servers keep their data.
    pub(crate) filesystem: String,
    /// Writing 512 bytes and waiting until the disk has them, there: the median.
    pub(crate) sync_us: f64,
    /// One minute's average before the run: other work on the machine.
    pub(crate) load: f64,
}

impl Machine {
    pub(crate) fn look(data: &Path) -> Result<Self> {
        let cpus = read_to_string("/proc/cpuinfo")?;
        let cpu = value(&cpus, "model name", ':').unwrap_or("unknown");
        let memory = read_to_string("/proc/meminfo")?;
        let kib: f64 = value(&memory, "MemTotal", ':')
            .and_then(|total| total.strip_suffix("kB")?.trim().parse().ok())
            .unwrap_or_default();
        let load = read_to_string("/proc/loadavg")?;
        let load = load.split(' ').next().and_then(|load| load.parse().ok());
        Ok(Self {
            cpu: cpu.to_owned(),
            cores: std::thread::available_parallelism()?.get(),
            memory_gib: kib / 1024.0 / 1024.0,
            kernel: read_to_string("/proc/sys/kernel/osrelease")?
                .trim()
                .to_owned(),
            filesystem: filesystem(data)?,
            sync_us: sync_us(data)?,
            load: load.unwrap_or_default(),
        })
    }
}

fn value<'a>(text: &'a str, key: &str, mark: char) -> Option<&'a str> {
    let lines = text.lines().filter_map(|line| line.split_once(mark));
    let mut values = lines.filter_map(|(name, value)| (name.trim() == key).then_some(value.trim()));
    values.next()
}

/// The kind of the longest mount point above this folder.
fn filesystem(folder: &Path) -> Result<String> {
    let (folder, mounts) = (folder.canonicalize()?, read_to_string("/proc/mounts")?);
    let above = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        folder.starts_with(point).then_some((point.len(), kind))
    });
    let kind = above.max_by_key(|(length, _)| *length);
    Ok(kind.map_or("unknown", |(_, kind)| kind).to_owned())
}

fn sync_us(folder: &Path) -> Result<f64> {
    const TRIES: usize = 200;
    let mut file = File::create(folder.join("sync-probe"))?;
    let mut times = Vec::with_capacity(TRIES);
    for _ in 0..TRIES {
        file.write_all(&[b'x'; 512])?;
        let began = Instant::now();
        file.sync_data()?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Spread::of(times).map_or(0.0, |times| times.median))
}
