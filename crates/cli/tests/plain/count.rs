//! Mutual exclusion of processes.

use std::sync::Arc;

use tempfile::TempDir;

use crate::bed::Bed;
use crate::tool::{finished, run};

crate::cases![eight_processes_count_without_losing_one];

const PROCESSES: usize = 8;
const TIMES: usize = 25;

async fn eight_processes_count_without_losing_one(bed: Arc<Bed>, name: String) {
    let url = bed.url().await;
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("count"), "0").unwrap();
    let script = "n=$(cat count); echo $((n+1)) > count";
    let mut loops = Vec::new();
    for _ in 0..PROCESSES {
        let (url, name, path) = (url.clone(), name.clone(), folder.path().to_owned());
        loops.push(tokio::spawn(async move {
            for _ in 0..TIMES {
                let mut command = run(&url, &[], &name, script);
                let ended = finished(command.current_dir(&path)).await;
                assert_eq!(ended.code, Some(0), "{ended:?}");
            }
        }));
    }
    for counting in loops {
        counting.await.unwrap();
    }
    let count = std::fs::read_to_string(folder.path().join("count")).unwrap();
    assert_eq!(count.trim(), (PROCESSES * TIMES).to_string());
}
