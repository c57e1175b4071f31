//! Lines over the number of waiters, on logarithmic scales, with a legend beside them.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{FAINT, FONT, INK, colour};
use crate::Result;
use crate::peer::Peer;
use crate::results::Spread;
use crate::text::whole;

const SIZE: (u32, u32) = (860, 460);
const LEFT: i32 = 82;
const RIGHT: i32 = 690;
const TOP: i32 = 76;
const BOTTOM: i32 = 410;

pub(super) struct Lines {
    pub(super) title: String,
    pub(super) below: String,
    pub(super) lines: Vec<Line>,
    /// How a value is written.
    pub(super) number: fn(f64) -> String,
    /// From one line across to the next, from one on: by these two factors in turn.
    pub(super) steps: [f64; 2],
}

pub(super) struct Line {
    peer: Peer,
    points: Vec<(f64, Spread)>,
}

type Sheet<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Line {
    pub(super) fn of(peer: Peer, points: Vec<(f64, Spread)>) -> Self {
        Self { peer, points }
    }

    /// Our line is the subject of the chart; the baseline is the reference.
    fn width(&self) -> u32 {
        match self.peer {
            Peer::Lockkeeper => 4,
            _ => 2,
        }
    }
}

/// From numbers to places on the sheet.
struct Scale {
    x: [f64; 2],
    y: [f64; 2],
}

impl Scale {
    fn place(&self, x: f64, y: f64) -> (i32, i32) {
        let part = |value: f64, [low, high]: [f64; 2]| (value / low).ln() / (high / low).ln();
        let across = f64::from(RIGHT - LEFT) * part(x, self.x);
        let up = f64::from(BOTTOM - TOP) * part(y, self.y);
        (LEFT + across as i32, BOTTOM - up as i32)
    }
}

impl Lines {
    pub(super) fn draw(&self, file: &Path) -> Result<()> {
        let Some(scale) = self.scale() else {
            return Ok(());
        };
        let sheet = SVGBackend::new(file, SIZE).into_drawing_area();
        sheet.draw(&words(&self.title, (16, 22), 19, HPos::Left))?;
        sheet.draw(&words(&self.below, (16, 46), 13, HPos::Left))?;
        self.axes(&sheet, &scale)?;
        // Ours is drawn last, on top.
        for line in self.lines.iter().rev() {
            draw_line(&sheet, &scale, line)?;
        }
        self.list(&sheet)?;
        Ok(sheet.present()?)
    }

    /// With a margin, so that no point is at the edge; none of nothing.
    fn scale(&self) -> Option<Scale> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let xs = points().map(|(x, _)| *x);
        let (left, right) = bounds(xs)?;
        let ys = points().flat_map(|(_, spread)| [spread.min.max(1.0), spread.max]);
        let (low, high) = bounds(ys)?;
        Some(Scale {
            x: [left / 1.3, right * 1.3],
            y: [low / 1.3, high * 1.3],
        })
    }

    fn axes(&self, sheet: &Sheet<'_>, scale: &Scale) -> Result<()> {
        let mut value = 1.0;
        let mut steps = self.steps.into_iter().cycle();
        while value <= scale.y[1] {
            if value >= scale.y[0] {
                let (_, y) = scale.place(scale.x[0], value);
                let across = vec![(LEFT, y), (RIGHT, y)];
                sheet.draw(&PathElement::new(across, FAINT.mix(0.35)))?;
                sheet.draw(&words(
                    &(self.number)(value),
                    (LEFT - 8, y),
                    13,
                    HPos::Right,
                ))?;
            }
            value *= steps.next().unwrap_or(10.0);
        }
        let edge = vec![(LEFT, BOTTOM), (RIGHT, BOTTOM)];
        sheet.draw(&PathElement::new(edge, FAINT.stroke_width(1)))?;
        let mut crowds: Vec<f64> = self
            .lines
            .iter()
            .flat_map(|line| line.points.iter().map(|(x, _)| *x))
            .collect();
        crowds.sort_by(f64::total_cmp);
        crowds.dedup();
        for waiters in crowds {
            let (x, _) = scale.place(waiters, scale.y[0]);
            let tick = vec![(x, BOTTOM), (x, BOTTOM + 5)];
            sheet.draw(&PathElement::new(tick, FAINT.stroke_width(1)))?;
            sheet.draw(&words(&whole(waiters), (x, BOTTOM + 18), 13, HPos::Center))?;
        }
        let middle = i32::midpoint(LEFT, RIGHT);
        Ok(sheet.draw(&words("waiters", (middle, BOTTOM + 38), 13, HPos::Center))?)
    }

    fn list(&self, sheet: &Sheet<'_>) -> Result<()> {
        let lines = self.lines.iter().filter(|line| !line.points.is_empty());
        for (line, y) in lines.zip((TOP + 10..).step_by(28)) {
            let stroke = colour(line.peer).stroke_width(line.width());
            let swatch = vec![(RIGHT + 18, y), (RIGHT + 42, y)];
            sheet.draw(&PathElement::new(swatch, stroke))?;
            sheet.draw(&words(line.peer.title(), (RIGHT + 50, y), 14, HPos::Left))?;
        }
        Ok(())
    }
}

fn draw_line(sheet: &Sheet<'_>, scale: &Scale, line: &Line) -> Result<()> {
    let colour = colour(line.peer);
    let places: Vec<(i32, i32)> = line
        .points
        .iter()
        .map(|(x, spread)| scale.place(*x, spread.median))
        .collect();
    for ((x, spread), (across, _)) in line.points.iter().zip(&places) {
        let (_, low) = scale.place(*x, spread.min.max(scale.y[0]));
        let (_, high) = scale.place(*x, spread.max);
        let range = vec![(*across, low), (*across, high)];
        sheet.draw(&PathElement::new(range, colour.stroke_width(1)))?;
    }
    for place in &places {
        let size = if line.peer == Peer::Lockkeeper { 5 } else { 4 };
        sheet.draw(&Circle::new(*place, size, colour.filled()))?;
    }
    Ok(sheet.draw(&PathElement::new(places, colour.stroke_width(line.width())))?)
}

fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let both = values.map(|value| (value, value));
    both.reduce(|(low, high), (value, _)| (low.min(value), high.max(value)))
}

fn words<'a>(
    text: &str,
    place: (i32, i32),
    size: i32,
    across: HPos,
) -> Text<'a, (i32, i32), String> {
    let font = (FONT, size).into_font().color(&INK);
    Text::new(
        text.to_owned(),
        place,
        font.pos(Pos::new(across, VPos::Center)),
    )
}
