//! Lying bars, one for each peer, with the least and the most of its rounds.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{FONT, INK};
use crate::Result;
use crate::results::Spread;
use crate::text::whole;

const WIDTH: i32 = 860;
const NAMES: i32 = 170;
const VALUES: i32 = 90;
const TOP: i32 = 74;
const STEP: i32 = 38;
const THICK: i32 = 22;

pub(super) struct Bars {
    pub(super) title: String,
    pub(super) below: String,
    pub(super) bars: Vec<Bar>,
}

pub(super) struct Bar {
    pub(super) name: String,
    pub(super) colour: RGBColor,
    pub(super) spread: Spread,
}

impl Bars {
    pub(super) fn draw(&self, file: &Path) -> Result<()> {
        let most = self
            .bars
            .iter()
            .map(|bar| bar.spread.max)
            .fold(0.0, f64::max);
        if most <= 0.0 {
            return Ok(());
        }
        let height = TOP + STEP * i32::try_from(self.bars.len())? + 14;
        let sheet = SVGBackend::new(file, (WIDTH as u32, height as u32)).into_drawing_area();
        let words = |size: i32, across| {
            let font = (FONT, size).into_font().color(&INK);
            font.pos(Pos::new(across, VPos::Center))
        };
        sheet.draw(&Text::new(
            self.title.as_str(),
            (16, 22),
            words(19, HPos::Left),
        ))?;
        sheet.draw(&Text::new(
            self.below.as_str(),
            (16, 46),
            words(13, HPos::Left),
        ))?;

        let length = |value: f64| (value / most * f64::from(WIDTH - NAMES - VALUES)) as i32;
        for (bar, top) in self.bars.iter().zip((TOP..).step_by(STEP as usize)) {
            let (middle, end) = (top + THICK / 2, NAMES + length(bar.spread.median));
            let name = Text::new(
                bar.name.as_str(),
                (NAMES - 10, middle),
                words(15, HPos::Right),
            );
            sheet.draw(&name)?;
            let corners = [(NAMES, top), (end, top + THICK)];
            sheet.draw(&Rectangle::new(corners, bar.colour.filled()))?;
            let (least, most) = (
                NAMES + length(bar.spread.min),
                NAMES + length(bar.spread.max),
            );
            if bar.spread.rounds > 1 {
                for x in [least, most] {
                    let tick = vec![(x, middle - 5), (x, middle + 5)];
                    sheet.draw(&PathElement::new(tick, INK.stroke_width(1)))?;
                }
                let range = vec![(least, middle), (most, middle)];
                sheet.draw(&PathElement::new(range, INK.stroke_width(1)))?;
            }
            let value = whole(bar.spread.median);
            let place = (end.max(most) + 10, middle);
            sheet.draw(&Text::new(value, place, words(15, HPos::Left)))?;
        }
        Ok(sheet.present()?)
    }
}
