//! What is in docker/monitoring and docs/metrics.md: files that their programs can read, about the
//! metrics that there are, and about all of them.
//!
//! It reads the names from the sources, so it sees names and not meaning. Prometheus and Grafana
//! are not asked.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    reason = "tests"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use yaml_rust2::{Yaml, YamlLoader};

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn yaml(file: &str) -> Yaml {
    let documents = YamlLoader::load_from_str(&read(file));
    let mut documents = documents.unwrap_or_else(|error| panic!("{file}: {error}"));
    assert_eq!(documents.len(), 1, "{file}");
    documents.remove(0)
}

fn json(file: &str) -> serde_json::Value {
    serde_json::from_str(&read(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

const ALERTS: &str = "docker/monitoring/alerts.yml";
const DASHBOARD: &str = "docker/monitoring/grafana/dashboards/lockkeeper.json";
const PAGE: &str = "docs/metrics.md";

/// The metrics that a text names; the parts of a histogram are the histogram.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let names = words.filter(|word| word.starts_with("lockkeeper_"));
    let parts = ["_bucket", "_count", "_sum"];
    let whole = |name: &str| {
        let part = parts.iter().find_map(|part| name.strip_suffix(part));
        part.unwrap_or(name).to_owned()
    };
    names.map(whole).collect()
}

/// The metrics that there are.
fn metrics() -> BTreeSet<String> {
    let names = named(&read("src/metrics.rs"));
    assert!(names.len() >= 10, "{names:?}");
    names
}

#[test]
fn the_alerts_the_dashboard_and_the_page_are_about_the_metrics_that_there_are_and_about_all_of_them()
 {
    let there = metrics();
    for file in [DASHBOARD, PAGE] {
        assert_eq!(named(&read(file)), there, "{file}");
    }
    // Not of all of them has one to be told.
    let told_of = named(&read(ALERTS));
    assert!(
        told_of.is_subset(&there),
        "{:?}",
        told_of.difference(&there)
    );
    let untold: Vec<&String> = there.difference(&told_of).collect();
    assert_eq!(untold, ["lockkeeper_held", "lockkeeper_queue_length"]);
}

#[test]
fn each_alert_is_whole_and_explained() {
    let (alerts, page) = (yaml(ALERTS), read(PAGE));
    let groups = alerts["groups"].as_vec().unwrap();
    let rules: Vec<&Yaml> = groups
        .iter()
        .flat_map(|group| group["rules"].as_vec().unwrap())
        .collect();

    assert!(rules.len() >= 6);
    for rule in &rules {
        let name = rule["alert"].as_str().unwrap();
        assert!(
            page.contains(&format!("| `{name}` |")),
            "{name} is not in {PAGE}"
        );
        let expression = rule["expr"].as_str().unwrap();
        assert!(!named(expression).is_empty(), "{name}: {expression}");
        let count = |c| expression.matches(c).count();
        assert_eq!(
            (count('('), count('{'), count('[')),
            (count(')'), count('}'), count(']')),
            "{name}: {expression}"
        );
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["warning", "critical"].contains(&severity), "{name}");
        for text in ["summary", "description"] {
            assert!(
                rule["annotations"][text].as_str().is_some(),
                "{name} has no {text}"
            );
        }
    }
    let explained = page.matches("| `Lock").count();
    assert_eq!(
        explained,
        rules.len(),
        "{PAGE} explains alerts that there are not"
    );
}

#[test]
fn the_dashboard_has_panels_for_each_metric_by_class_and_with_its_quantiles() {
    let dashboard = json(DASHBOARD);
    let panels = dashboard["panels"].as_array().unwrap();
    let expressions = || {
        let targets = panels
            .iter()
            .filter_map(|panel| panel["targets"].as_array())
            .flatten();
        targets.map(|target| target["expr"].as_str().unwrap())
    };

    let ids: BTreeSet<u64> = panels
        .iter()
        .map(|panel| panel["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
    for metric in metrics() {
        let of = expressions().filter(|expression| named(expression).contains(&metric));
        let of: Vec<&str> = of.collect();
        let is_of_sessions = metric.contains("sessions") || metric.contains("reconnects");
        let by = if is_of_sessions {
            "by (job, instance"
        } else {
            "by (class, kind"
        };
        assert!(
            of.iter().any(|expression| expression.contains(by)),
            "{metric}: {of:?}"
        );
        if of.iter().any(|expression| expression.contains("_bucket")) {
            for quantile in ["0.5", "0.95", "0.99"] {
                let start = format!("histogram_quantile({quantile}, ");
                assert!(
                    of.iter().any(|expression| expression.starts_with(&start)),
                    "{metric}: {quantile}"
                );
            }
        }
    }
    for quantiled in ["wait_seconds", "hold_seconds", "queue_length"] {
        let bucket = format!("lockkeeper_{quantiled}_bucket");
        assert!(
            expressions().any(|expression| expression.contains(&bucket)),
            "{quantiled}"
        );
    }
}

#[test]
fn what_is_mounted_and_provisioned_is_there() {
    let folder = "docker/monitoring";
    let compose = yaml(&format!("{folder}/compose.yaml"));
    for service in ["prometheus", "grafana"] {
        for volume in compose["services"][service]["volumes"].as_vec().unwrap() {
            let source = volume.as_str().unwrap().split(':').next().unwrap();
            let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join(folder)
                .join(source);
            assert!(path.exists(), "{service}: {}", path.display());
        }
    }
    let prometheus = yaml(&format!("{folder}/prometheus.yml"));
    assert_eq!(prometheus["rule_files"][0].as_str(), Some("alerts.yml"));
    assert!(
        prometheus["scrape_configs"][0]["static_configs"][0]["targets"][0]
            .as_str()
            .is_some()
    );
    let source = yaml(&format!(
        "{folder}/grafana/provisioning/datasources/prometheus.yml"
    ));
    let uid = source["datasources"][0]["uid"].as_str().unwrap();
    let panels = json(DASHBOARD)["panels"].as_array().unwrap().clone();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert_eq!(panel["datasource"]["uid"], uid, "{panel}");
    }
    let provider = yaml(&format!(
        "{folder}/grafana/provisioning/dashboards/lockkeeper.yml"
    ));
    assert!(
        provider["providers"][0]["options"]["path"]
            .as_str()
            .is_some()
    );
}
