//! The structure of the library as a picture, and for Mermaid.
//!
//! The picture has no background, and colours of middle brightness: it can be read on a light page
//! and on a dark one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::circles::Graph;
use crate::figures::Figures;
use crate::layout::Layout;

/// Of words and lines.
const INK: &str = "#767E89";
/// Of folders.
const BLUE: &str = "#3B82F6";
/// Of circles.
const RED: &str = "#E5484D";

const LEFT: f64 = 16.0;
const TOP: f64 = 84.0;
const BOX_HEIGHT: f64 = 42.0;
const ROW_HEIGHT: f64 = 88.0;
/// The pictures of the pages are so wide.
const WIDTH: f64 = 860.0;

/// The parts of `src/` and their imports.
pub(crate) fn mermaid(figures: &Figures) -> String {
    let graph = figures.imports.parts_of("");
    let mut text = String::from("flowchart TD\n");
    for (name, part) in parts(figures) {
        _ = writeln!(text, "    {name}[\"{name}: {} lines\"]", part.code);
    }
    for (at, (from, to, count)) in graph.edges().enumerate() {
        _ = writeln!(text, "    {from} -->|{count}| {to}");
        if graph.is_on_a_circle(from, to) {
            _ = writeln!(text, "    linkStyle {at} stroke:{RED}");
        }
    }
    text
}

struct Part {
    code: usize,
    is_folder: bool,
}

/// All but `lib.rs`, which names everything. What is counted for itself is in its folder too.
fn parts(figures: &Figures) -> BTreeMap<&str, Part> {
    let mut parts = BTreeMap::new();
    for counted in figures.library.iter().filter(|part| part.name != "lib") {
        let name = counted.name.split('/').next().unwrap_or(&counted.name);
        let (code, is_folder) = (0, false);
        let part: &mut Part = parts.entry(name).or_insert(Part { code, is_folder });
        part.code += counted.code;
        part.is_folder |= counted.files > 1;
    }
    parts
}

/// The files that import nothing but each other. Everything may use them, so they get no arrows.
fn base<'a>(graph: &'a Graph, parts: &BTreeMap<&str, Part>) -> BTreeSet<&'a str> {
    let knots = graph.knots();
    let is_file = |name: &&str| {
        let is_free = !knots.iter().any(|knot| knot.contains(name));
        is_free && parts.get(name).is_some_and(|part| !part.is_folder)
    };
    let mut base: BTreeSet<&str> = graph.nodes().filter(is_file).collect();
    loop {
        let before = base.clone();
        base.retain(|name| graph.from(name).all(|(to, _)| before.contains(to)));
        if base.len() == before.len() {
            return base;
        }
    }
}

/// An arrow that is drawn.
struct Arrow<'a> {
    from: &'a str,
    to: &'a str,
    count: usize,
    /// It closes a circle.
    is_up: bool,
}

/// All arrows but those that a longer way down implies.
fn arrows<'a>(graph: &'a Graph, up: &BTreeSet<(&str, &str)>) -> Vec<Arrow<'a>> {
    let mut down = Graph::default();
    for (from, to, count) in graph.edges() {
        if !up.contains(&(from, to)) {
            down.add(from, to, count);
        }
    }
    let is_implied = |from: &str, to: &str| {
        let mut others = down.from(from).filter(|(other, _)| *other != to);
        others.any(|(other, _)| down.has_way(other, to))
    };
    let arrows = graph.edges().map(|(from, to, count)| Arrow {
        from,
        to,
        count,
        is_up: up.contains(&(from, to)),
    });
    arrows
        .filter(|arrow| arrow.is_up || !is_implied(arrow.from, arrow.to))
        .collect()
}

/// The picture.
pub(crate) fn svg(figures: &Figures) -> String {
    let parts = parts(figures);
    let whole = figures.imports.parts_of("");
    let base = base(&whole, &parts);
    let mut graph = Graph::default();
    for name in whole.nodes().filter(|name| !base.contains(name)) {
        graph.add_node(name);
        for (to, count) in whole.from(name).filter(|(to, _)| !base.contains(to)) {
            graph.add(name, to, count);
        }
    }
    let (layers, up) = graph.layers();
    let rows = layers.values().max().map_or(0, |layer| layer + 1);
    let arrows = arrows(&graph, &up);

    let mut layout = Layout::default();
    for (name, layer) in &layers {
        layout.add_box(name, rows - 1 - layer, width_of(name));
    }
    for arrow in &arrows {
        if arrow.is_up {
            layout.add_arrow(arrow.to, arrow.from);
        } else {
            layout.add_arrow(arrow.from, arrow.to);
        }
    }
    layout.settle();
    let width = (layout.width() + 2.0 * LEFT).max(WIDTH);
    let aside = (width - 2.0 * LEFT - layout.width()) / 2.0;

    let mut picture = Picture {
        text: String::new(),
        left: LEFT + aside,
    };
    for (number, arrow) in arrows.iter().enumerate() {
        picture.arrow(arrow, &layout.way(number));
    }
    let knots = graph.knots();
    for (name, part) in parts.iter().filter(|(name, _)| !base.contains(*name)) {
        let is_in_a_circle = knots.iter().any(|knot| knot.contains(name));
        picture.part(name, part, layout.place(name), is_in_a_circle);
    }
    let bottom = TOP + rows as f64 * ROW_HEIGHT;
    let height = picture.base(&base, &parts, bottom, width);
    picture.beside(figures, height, width);
    let sums = format!(
        "{} lines of code in {} folders and {} files beside them, without tests; each box has its own",
        grouped(figures.library_code()),
        parts.values().filter(|part| part.is_folder).count(),
        parts.values().filter(|part| !part.is_folder).count() + 1,
    );
    framed(&picture.text, &sums, width, height + 30.0)
}

/// The head of the picture, and its end.
fn framed(body: &str, sums: &str, width: f64, height: f64) -> String {
    format!(
        "<svg width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"The parts of the library and their imports\">\n\
         <defs>\n{}{}</defs>\n\
         <g font-family=\"sans-serif\" font-size=\"10.5\" fill=\"{INK}\" text-anchor=\"middle\">\n\
         <text x=\"16\" y=\"26\" text-anchor=\"start\" font-size=\"15.3\">The library and its imports</text>\n\
         <text x=\"16\" y=\"46\" text-anchor=\"start\">{sums}</text>\n\
         <text x=\"16\" y=\"62\" text-anchor=\"start\">An arrow leads to what a part imports, with the number of imports. Arrows that others imply are left out. Circles are red.</text>\n\
         {body}</g>\n</svg>\n",
        head("down", INK),
        head("up", RED),
    )
}

/// The head of an arrow.
fn head(name: &str, colour: &str) -> String {
    format!(
        "<marker id=\"{name}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0,0.5 L8,4 L0,7.5 z\" fill=\"{colour}\"/></marker>\n"
    )
}

fn width_of(name: &str) -> f64 {
    (name.len() as f64 * 8.0 + 22.0).max(74.0)
}

fn top_of(row: usize) -> f64 {
    TOP + row as f64 * ROW_HEIGHT
}

/// With a thin space between thousands.
fn grouped(number: usize) -> String {
    if number < 1000 {
        return number.to_string();
    }
    format!("{}\u{202f}{:03}", number / 1000, number % 1000)
}

struct Picture {
    text: String,
    left: f64,
}

impl Picture {
    fn part(&mut self, name: &str, part: &Part, place: (f64, usize), is_in_a_circle: bool) {
        let (x, y, width) = (self.left + place.0, top_of(place.1), width_of(name));
        let colour = match (is_in_a_circle, part.is_folder) {
            (true, _) => RED,
            (false, true) => BLUE,
            (false, false) => INK,
        };
        let (slash, stroke) = if part.is_folder {
            ("/", 1.8)
        } else {
            ("", 1.0)
        };
        _ = write!(
            self.text,
            "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BOX_HEIGHT}\" rx=\"5\" fill=\"{colour}\" fill-opacity=\"0.1\" stroke=\"{colour}\" stroke-width=\"{stroke}\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"13\">{name}{slash}</text>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\">{}</text>\n",
            x - width / 2.0,
            y + 18.0,
            y + 33.0,
            grouped(part.code),
        );
    }

    fn arrow(&mut self, arrow: &Arrow<'_>, way: &[(f64, usize)]) {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (at, (x, row)) in way.iter().enumerate() {
            let (x, y) = (self.left + x, top_of(*row));
            // It enters a row at the top and leaves it at the bottom.
            if at > 0 {
                points.push((x, y - 2.0));
            }
            if at + 1 < way.len() {
                points.push((x, y + BOX_HEIGHT + 2.0));
            }
        }
        let (colour, marker) = if arrow.is_up {
            (RED, "up")
        } else {
            (INK, "down")
        };
        if arrow.is_up {
            points.reverse();
        }
        let mut path = format!("M{:.1},{:.1}", points[0].0, points[0].1);
        for pair in points.windows(2) {
            let [(x, y), (to_x, to_y)] = [pair[0], pair[1]];
            let middle = f64::midpoint(y, to_y);
            _ = write!(
                path,
                " C{x:.1},{middle:.1} {to_x:.1},{middle:.1} {to_x:.1},{to_y:.1}"
            );
        }
        let width = if arrow.is_up { 1.8 } else { 1.0 };
        let [(x, y), (to_x, to_y)] = [points[0], points[1]];
        // The number stands above the first bend.
        let (anchor, aside) = if to_x < x {
            ("end", -3.0)
        } else {
            ("start", 3.0)
        };
        _ = write!(
            self.text,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" marker-end=\"url(#{marker})\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"9\" fill=\"{colour}\" text-anchor=\"{anchor}\">{}</text>\n",
            x + (to_x - x) * 0.22 + aside,
            y + (to_y - y) * 0.34 - 2.0,
            arrow.count,
        );
    }

    /// Draws the files that everything may import as one box. Returns the bottom of the picture.
    fn base(
        &mut self,
        base: &BTreeSet<&str>,
        parts: &BTreeMap<&str, Part>,
        y: f64,
        width: f64,
    ) -> f64 {
        let files = base
            .iter()
            .filter_map(|name| Some((*name, parts.get(name)?.code)));
        let words: Vec<String> = files
            .map(|(name, code)| format!("{name} {}", grouped(code)))
            .collect();
        if words.is_empty() {
            return y;
        }
        _ = write!(
            self.text,
            "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"46\" rx=\"5\" fill=\"{INK}\" fill-opacity=\"0.1\" stroke=\"{INK}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"12\">{}</text>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">files that import nothing but each other; arrows to them are not drawn</text>\n",
            width - 2.0 * LEFT,
            width / 2.0,
            y + 20.0,
            words.join(" \u{b7} "),
            width / 2.0,
            y + 36.0,
        );
        y + 46.0
    }

    /// The crates beside the library.
    fn beside(&mut self, figures: &Figures, y: f64, width: f64) {
        let is_near = |name: &str| name.starts_with("src/") || name.starts_with("crates/");
        let others = figures.others.iter().filter(|other| is_near(&other.name));
        let others: Vec<String> = others
            .map(|other| format!("{}/ {}", other.name, grouped(other.code)))
            .collect();
        _ = writeln!(
            self.text,
            "<text x=\"{:.1}\" y=\"{:.1}\">beside the library: {}</text>",
            width / 2.0,
            y + 20.0,
            others.join(" \u{b7} "),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn this_very_library_can_be_drawn() {
        let figures = Figures::of(&crate::checkout()).unwrap();
        let picture = svg(&figures);

        let graph = figures.imports.parts_of("");
        let drawn: BTreeSet<&str> = parts(&figures).into_keys().collect();
        assert!(
            graph
                .nodes()
                .all(|name| name == "lib" || drawn.contains(name))
        );
        assert!(drawn.iter().all(|name| picture.contains(name)), "{drawn:?}");
    }
}
