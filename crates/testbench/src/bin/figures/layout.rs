//! Where the boxes of a layered picture stand, and the way of each arrow between them.

use std::collections::BTreeMap;

/// Between two things of one row.
const GAP: f64 = 22.0;
/// Of an arrow that passes a row.
const LANE: f64 = 10.0;
/// Enough that nothing moves any more.
const SWEEPS: usize = 40;

/// A box, or an arrow that passes between boxes.
#[derive(Debug, Clone)]
struct Spot {
    row: usize,
    width: f64,
    x: f64,
}

/// Rows are numbered from the top.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    spots: Vec<Spot>,
    boxes: BTreeMap<String, usize>,
    /// The spots that each arrow touches, from the upper box to the lower one.
    ways: Vec<Vec<usize>>,
    rows: Vec<Vec<usize>>,
}

impl Layout {
    pub(crate) fn add_box(&mut self, name: &str, row: usize, width: f64) {
        let spot = self.add_spot(row, width);
        self.boxes.insert(name.to_owned(), spot);
    }

    fn add_spot(&mut self, row: usize, width: f64) -> usize {
        let spot = self.spots.len();
        self.spots.push(Spot { row, width, x: 0.0 });
        if self.rows.len() <= row {
            self.rows.resize(row + 1, Vec::new());
        }
        self.rows[row].push(spot);
        spot
    }

    /// An arrow between boxes of different rows, the upper one first. Its number.
    pub(crate) fn add_arrow(&mut self, upper: &str, lower: &str) -> usize {
        let (upper, lower) = (self.boxes[upper], self.boxes[lower]);
        let mut way = vec![upper];
        for row in self.spots[upper].row + 1..self.spots[lower].row {
            way.push(self.add_spot(row, LANE));
        }
        way.push(lower);
        self.ways.push(way);
        self.ways.len() - 1
    }

    /// Places everything near its neighbours, between 0 and the width.
    pub(crate) fn settle(&mut self) {
        for row in 0..self.rows.len() {
            self.space_out(row, |spot| spot.x);
        }
        for sweep in 0..SWEEPS {
            let rows = self.rows.len();
            for at in 0..rows {
                let row = if sweep % 2 == 0 { at } else { rows - 1 - at };
                let wanted = self.wanted(row, sweep % 2 == 0);
                // Later the order stays, and all neighbours are looked at.
                if sweep < SWEEPS / 2 {
                    let key = |spot: &usize| wanted[spot];
                    self.rows[row].sort_by(|one, other| key(one).total_cmp(&key(other)));
                }
                for (spot, x) in wanted {
                    self.spots[spot].x = x;
                }
                self.space_out(row, |spot| spot.x);
            }
        }
        let left = self.spots.iter().map(|spot| spot.x - spot.width / 2.0);
        let left = left.fold(f64::INFINITY, f64::min);
        for spot in &mut self.spots {
            spot.x -= left;
        }
    }

    pub(crate) fn width(&self) -> f64 {
        let right = self.spots.iter().map(|spot| spot.x + spot.width / 2.0);
        right.fold(0.0, f64::max)
    }

    /// The mean position of each spot's neighbours in the row before it, or after it.
    fn wanted(&self, row: usize, is_down: bool) -> BTreeMap<usize, f64> {
        let mut near: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for pair in self.ways.iter().flat_map(|way| way.windows(2)) {
            let (one, other) = if is_down {
                (pair[1], pair[0])
            } else {
                (pair[0], pair[1])
            };
            if self.spots[one].row == row {
                near.entry(one).or_default().push(self.spots[other].x);
            }
        }
        let middle = |spot: &usize| {
            let near = near.get(spot);
            let x = near.map_or(self.spots[*spot].x, |near| {
                near.iter().sum::<f64>() / near.len() as f64
            });
            (*spot, x)
        };
        self.rows[row].iter().map(middle).collect()
    }

    /// Gives each spot of a row a place near the wanted one, so that none touches another. Their
    /// order stays.
    fn space_out(&mut self, row: usize, wanted: impl Fn(&Spot) -> f64) {
        // Groups of spots that push each other: where the first one is, and how many there are.
        let mut groups: Vec<(f64, usize)> = Vec::new();
        let (mut offset, mut offsets) = (0.0, Vec::new());
        let mut before: Option<f64> = None;
        for spot in &self.rows[row] {
            let spot = &self.spots[*spot];
            offset += before.map_or(0.0, |width| f64::midpoint(width, spot.width) + GAP);
            before = Some(spot.width);
            offsets.push(offset);
            groups.push((wanted(spot) - offset, 1));
            while let [.., (left, count), (right, more)] = groups[..] {
                if left <= right {
                    break;
                }
                let all = count + more;
                let middle = (left * count as f64 + right * more as f64) / all as f64;
                groups.truncate(groups.len() - 2);
                groups.push((middle, all));
            }
        }
        let starts = groups
            .iter()
            .flat_map(|(start, count)| std::iter::repeat_n(*start, *count));
        let places: Vec<f64> = starts
            .zip(offsets)
            .map(|(start, offset)| start + offset)
            .collect();
        for (spot, x) in self.rows[row].iter().zip(places) {
            self.spots[*spot].x = x;
        }
    }

    /// The middle of a box, and its row.
    pub(crate) fn place(&self, name: &str) -> (f64, usize) {
        let spot = &self.spots[self.boxes[name]];
        (spot.x, spot.row)
    }

    /// The places that an arrow touches, the upper first. At a box, arrows stand side by side.
    pub(crate) fn way(&self, arrow: usize) -> Vec<(f64, usize)> {
        let way = &self.ways[arrow];
        let mut places: Vec<(f64, usize)> = way
            .iter()
            .map(|spot| (self.spots[*spot].x, self.spots[*spot].row))
            .collect();
        let last = way.len() - 1;
        places[0].0 += self.aside(arrow, way[0], true);
        places[last].0 += self.aside(arrow, way[last], false);
        places
    }

    /// How far from the middle of this box an arrow stands that leaves it below, or ends there.
    fn aside(&self, arrow: usize, spot: usize, is_below: bool) -> f64 {
        let mut ends: Vec<(f64, usize)> = Vec::new();
        for (number, way) in self.ways.iter().enumerate() {
            let (first, last) = (way[0], way[way.len() - 1]);
            if is_below && first == spot {
                ends.push((self.spots[way[1]].x, number));
            } else if !is_below && last == spot {
                ends.push((self.spots[way[way.len() - 2]].x, number));
            }
        }
        ends.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let at = ends.iter().position(|end| end.1 == arrow).unwrap_or(0);
        let room = self.spots[spot].width - 20.0;
        room * ((at + 1) as f64 / (ends.len() + 1) as f64 - 0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_of_a_row_do_not_touch_and_stand_over_what_they_use() {
        let mut layout = Layout::default();
        for (name, row) in [("a", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 2)] {
            layout.add_box(name, row, 50.0);
        }
        for (upper, lower) in [("a", "d"), ("b", "c"), ("d", "e"), ("b", "e")] {
            layout.add_arrow(upper, lower);
        }
        layout.settle();
        let width = layout.width();
        let x = |name: &str| layout.place(name).0;

        assert!((x("a") - x("b")).abs() >= 50.0 + GAP);
        assert!((x("c") - x("d")).abs() >= 50.0 + GAP);
        assert_eq!(x("a") < x("b"), x("d") < x("c"));
        assert!(width < 250.0, "{width}");
        assert_eq!(layout.way(3).len(), 3);
    }
}
