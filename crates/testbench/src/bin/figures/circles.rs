//! Circles of a graph, and the layers that it has without them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A directed graph with the weight of each edge.
#[derive(Debug, Default, Clone)]
pub(crate) struct Graph {
    edges: BTreeMap<String, BTreeMap<String, usize>>,
}

impl Graph {
    pub(crate) fn add_node(&mut self, name: &str) {
        self.edges.entry(name.to_owned()).or_default();
    }

    pub(crate) fn add(&mut self, from: &str, to: &str, count: usize) {
        self.add_node(to);
        let edges = self.edges.entry(from.to_owned()).or_default();
        *edges.entry(to.to_owned()).or_default() += count;
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.edges.keys().map(String::as_str)
    }

    pub(crate) fn from(&self, node: &str) -> impl Iterator<Item = (&str, usize)> {
        let edges = self.edges.get(node).into_iter().flatten();
        edges.map(|(to, count)| (to.as_str(), *count))
    }

    pub(crate) fn edges(&self) -> impl Iterator<Item = (&str, &str, usize)> {
        self.nodes()
            .flat_map(|from| self.from(from).map(move |(to, count)| (from, to, count)))
    }

    /// The shortest way between two nodes, both included. From a node to itself it is a circle.
    fn way(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let mut before: BTreeMap<&str, &str> = BTreeMap::new();
        let mut next = VecDeque::from([from]);
        while let Some(node) = next.pop_front() {
            for (other, _) in self.from(node) {
                if before.contains_key(other) {
                    continue;
                }
                before.insert(other, node);
                if other != to {
                    next.push_back(other);
                    continue;
                }
                let mut way = vec![to.to_owned()];
                let mut at = node;
                while at != from {
                    way.push(at.to_owned());
                    at = before[at];
                }
                way.push(from.to_owned());
                way.reverse();
                return Some(way);
            }
        }
        None
    }

    /// For each edge the shortest circle through it. Each circle comes once, the shortest first. It
    /// begins at its first name, which is not repeated at its end.
    pub(crate) fn circles(&self) -> Vec<Vec<String>> {
        let mut found = BTreeSet::new();
        for (from, to, _) in self.edges() {
            if let Some(mut circle) = self.way(to, from) {
                let first = circle.iter().min().cloned();
                let at = circle.iter().position(|node| Some(node) == first.as_ref());
                circle.rotate_left(at.unwrap_or(0));
                found.insert((circle.len(), circle));
            }
        }
        found.into_iter().map(|(_, circle)| circle).collect()
    }

    pub(crate) fn has_way(&self, from: &str, to: &str) -> bool {
        self.way(from, to).is_some()
    }

    /// Whether a path leads back over this edge.
    pub(crate) fn is_on_a_circle(&self, from: &str, to: &str) -> bool {
        self.way(to, from).is_some()
    }

    /// The groups of nodes that reach each other, the largest first.
    pub(crate) fn knots(&self) -> Vec<Vec<&str>> {
        let mut left: BTreeSet<&str> = self.nodes().collect();
        let mut knots = Vec::new();
        while let Some(node) = left.pop_first() {
            let reach =
                |other: &&str| self.way(node, other).is_some() && self.way(other, node).is_some();
            let mut knot: Vec<&str> = left.iter().copied().filter(reach).collect();
            left.retain(|other| !knot.contains(other));
            knot.insert(0, node);
            if knot.len() > 1 {
                knots.push(knot);
            }
        }
        knots.sort_by_key(|knot| std::cmp::Reverse(knot.len()));
        knots
    }

    /// An order in which few edges point forward: a node comes before its users where it can.
    pub(crate) fn order(&self) -> Vec<&str> {
        let mut left: BTreeSet<&str> = self.nodes().collect();
        let (mut bottom, mut top) = (Vec::new(), Vec::new());
        while !left.is_empty() {
            let out = |node: &str| -> usize {
                let edges = self.from(node);
                edges
                    .filter(|(to, _)| *to != node && left.contains(to))
                    .map(|edge| edge.1)
                    .sum()
            };
            let into = |node: &str| -> usize {
                let edges = self.edges();
                edges
                    .filter(|(from, to, _)| *to == node && *from != node && left.contains(from))
                    .map(|edge| edge.2)
                    .sum()
            };
            if let Some(node) = left.iter().copied().find(|node| out(node) == 0) {
                left.remove(node);
                bottom.push(node);
            } else if let Some(node) = left.iter().copied().find(|node| into(node) == 0) {
                left.remove(node);
                top.push(node);
            } else {
                // In a circle: the node with the most users beyond what it uses goes down.
                let weight = |node: &&str| into(node) as i64 - out(node) as i64;
                let node = left.iter().copied().max_by_key(weight);
                let node = node.expect("not empty");
                left.remove(node);
                bottom.push(node);
            }
        }
        bottom.extend(top.into_iter().rev());
        bottom
    }

    /// The layer of each node, from 0 at the bottom, and the edges that do not point down.
    pub(crate) fn layers(&self) -> (BTreeMap<&str, usize>, BTreeSet<(&str, &str)>) {
        let mut layers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut against = BTreeSet::new();
        for node in self.order() {
            let mut layer = 0;
            for (to, _) in self.from(node) {
                match layers.get(to) {
                    Some(below) => layer = layer.max(below + 1),
                    None => _ = against.insert((node, to)),
                }
            }
            layers.insert(node, layer);
        }
        (layers, against)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::default();
        for (from, to) in edges {
            graph.add(from, to, 1);
        }
        graph
    }

    #[test]
    fn each_circle_is_found_once() {
        let found = graph(&[("b", "a"), ("a", "b"), ("b", "c"), ("c", "d"), ("d", "b")]).circles();

        assert_eq!(found, [vec!["a", "b"], vec!["b", "c", "d"]]);
    }

    #[test]
    fn what_has_no_circle_has_layers_in_which_all_edges_point_down() {
        let graph = graph(&[("c", "b"), ("c", "a"), ("b", "a"), ("d", "b")]);
        let (layers, against) = graph.layers();

        assert!(graph.circles().is_empty() && graph.knots().is_empty());
        assert!(against.is_empty());
        assert_eq!(
            layers,
            BTreeMap::from([("a", 0), ("b", 1), ("c", 2), ("d", 2)])
        );
    }

    #[test]
    fn of_a_circle_the_least_used_edge_points_up() {
        let mut graph = graph(&[("a", "b")]);
        graph.add("b", "a", 9);
        let (layers, against) = graph.layers();

        assert_eq!(layers, BTreeMap::from([("a", 0), ("b", 1)]));
        assert_eq!(against, BTreeSet::from([("a", "b")]));
        assert_eq!(graph.knots(), [["a", "b"]]);
    }
}
