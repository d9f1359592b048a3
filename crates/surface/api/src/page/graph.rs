//! Where the steps of a workflow stand in its picture, layer by layer from left to right.
//!
//! A step's layer is its longest way from the start; an edge that passes layers goes through places of its own in each
//! of them, so that it never runs beneath a step. Order within a layer and heights follow the neighbours' means, a few
//! sweeps long: enough for pictures that people still read.

use std::{fmt::Write as _, ops::Range};

use honeyflow_workflow::{Edge, Graph, StepId};

/// A larger workflow is summed up in words.
pub(crate) const STEPS_DRAWN_MAX: usize = 80;
const EDGES_DRAWN_MAX: usize = 240;

pub(crate) const STEP_WIDTH: f64 = 148.0;
pub(crate) const STEP_HEIGHT: f64 = 84.0;
pub(crate) const START_WIDTH: f64 = 116.0;
pub(crate) const START_HEIGHT: f64 = 40.0;
const PASS_HEIGHT: f64 = 12.0;
const GAP_ACROSS: f64 = 44.0;
const GAP_DOWN: f64 = 14.0;
const MARGIN: f64 = 4.0;
const SWEEPS: usize = 8;

pub(crate) struct Layout {
    pub width: f64,
    pub height: f64,
    /// The events that begin a run: left upper corner.
    pub start: (f64, f64),
    /// By step: left upper corner.
    pub steps: Vec<(f64, f64)>,
    pub edges: Vec<Line>,
}

pub(crate) struct Line {
    pub path: String,
    /// None: from the start.
    pub edge: Option<Edge>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Start,
    Step(StepId),
    /// An edge on its way.
    Pass,
}

struct Place {
    holds: Holds,
    layer: usize,
    /// Centre.
    y: f64,
    left: Vec<usize>,
    right: Vec<usize>,
}

impl Place {
    fn height(&self) -> f64 {
        match self.holds {
            Holds::Start => START_HEIGHT,
            Holds::Step(_) => STEP_HEIGHT,
            Holds::Pass => PASS_HEIGHT,
        }
    }
}

/// None if it is too large to be read as a picture.
pub(crate) fn layout(graph: &Graph) -> Option<Layout> {
    let edge_count: usize = graph.ids().map(|step| graph.needs(step).len()).sum();
    if graph.steps.is_empty() || graph.steps.len() > STEPS_DRAWN_MAX || edge_count > EDGES_DRAWN_MAX {
        return None;
    }
    let mut picture = Picture::new(graph);
    let ways = picture.connect(graph);
    for _ in 0..SWEEPS {
        picture.order(|place| &place.left);
        picture.order(|place| &place.right);
    }
    picture.stack();
    for _ in 0..3 * SWEEPS {
        picture.relax(0..picture.layers.len());
    }
    picture.relax(0..1);
    Some(picture.finish(graph, ways))
}

struct Picture {
    places: Vec<Place>,
    /// By layer, from top to bottom.
    layers: Vec<Vec<usize>>,
    /// By step.
    of_step: Vec<usize>,
}

struct Way {
    places: Vec<usize>,
    edge: Option<Edge>,
}

impl Picture {
    fn new(graph: &Graph) -> Picture {
        let mut layer_of = vec![1_usize; graph.steps.len()];
        for step in graph.topological() {
            let needs = graph.needs(*step).iter();
            layer_of[usize::from(*step)] = needs.map(|(need, _)| layer_of[usize::from(*need)] + 1).max().unwrap_or(1);
        }
        let layer_count = layer_of.iter().max().map_or(1, |last| last + 1);
        let mut picture =
            Picture { places: Vec::new(), layers: vec![Vec::new(); layer_count], of_step: vec![0; graph.steps.len()] };
        picture.add(Holds::Start, 0);
        for step in graph.topological() {
            picture.of_step[usize::from(*step)] = picture.add(Holds::Step(*step), layer_of[usize::from(*step)]);
        }
        picture
    }

    fn add(&mut self, holds: Holds, layer: usize) -> usize {
        self.places.push(Place { holds, layer, y: 0.0, left: Vec::new(), right: Vec::new() });
        self.layers[layer].push(self.places.len() - 1);
        self.places.len() - 1
    }

    fn connect(&mut self, graph: &Graph) -> Vec<Way> {
        let mut ways = Vec::new();
        for step in graph.ids() {
            let to = self.of_step[usize::from(step)];
            if graph.needs(step).is_empty() {
                ways.push(Way { places: self.way(0, to), edge: None });
            }
            for (need, edge) in graph.needs(step) {
                let from = self.of_step[usize::from(*need)];
                ways.push(Way { places: self.way(from, to), edge: Some(*edge) });
            }
        }
        ways
    }

    fn way(&mut self, from: usize, to: usize) -> Vec<usize> {
        let mut way = vec![from];
        for layer in self.places[from].layer + 1..self.places[to].layer {
            way.push(self.add(Holds::Pass, layer));
        }
        way.push(to);
        for pair in way.windows(2) {
            self.places[pair[0]].right.push(pair[1]);
            self.places[pair[1]].left.push(pair[0]);
        }
        way
    }

    /// Sorts each layer by the mean position of its neighbours on one side.
    #[expect(clippy::cast_precision_loss, reason = "positions within a layer")]
    fn order(&mut self, side: fn(&Place) -> &Vec<usize>) {
        for layer in 0..self.layers.len() {
            let mut position = vec![0.0; self.places.len()];
            for row in &self.layers {
                row.iter().enumerate().for_each(|(at, place)| position[*place] = at as f64 / row.len() as f64);
            }
            let mean = |place: usize| {
                let neighbours = side(&self.places[place]);
                if neighbours.is_empty() {
                    return position[place];
                }
                neighbours.iter().map(|other| position[*other]).sum::<f64>() / neighbours.len() as f64
            };
            let mut row: Vec<_> = self.layers[layer].iter().map(|place| (mean(*place), *place)).collect();
            row.sort_by(|a, b| a.0.total_cmp(&b.0));
            self.layers[layer] = row.into_iter().map(|(_, place)| place).collect();
        }
    }

    /// Each layer from top to bottom, centred.
    fn stack(&mut self) {
        for row in &self.layers {
            let total: f64 = row.iter().map(|place| self.places[*place].height() + GAP_DOWN).sum::<f64>() - GAP_DOWN;
            let mut top = -total / 2.0;
            for place in row {
                let height = self.places[*place].height();
                self.places[*place].y = top + height / 2.0;
                top += height + GAP_DOWN;
            }
        }
    }

    /// Moves each place towards its neighbours' mean. What pushing down and what pushing up would give both keep the
    /// distances, so their mean does too.
    #[expect(clippy::cast_precision_loss, reason = "few neighbours")]
    fn relax(&mut self, layers: Range<usize>) {
        for layer in layers {
            let row = self.layers[layer].clone();
            let wish = |place: &usize| {
                let place = &self.places[*place];
                let neighbours: Vec<_> = place.left.iter().chain(&place.right).collect();
                if neighbours.is_empty() {
                    return place.y;
                }
                neighbours.iter().map(|other| self.places[**other].y).sum::<f64>() / neighbours.len() as f64
            };
            let wishes: Vec<f64> = row.iter().map(wish).collect();
            let distance = |a: usize, b: usize| {
                f64::midpoint(self.places[row[a]].height(), self.places[row[b]].height()) + GAP_DOWN
            };
            let mut down = wishes.clone();
            for at in 1..row.len() {
                down[at] = down[at].max(down[at - 1] + distance(at - 1, at));
            }
            let mut up = wishes;
            for at in (1..row.len()).rev() {
                up[at - 1] = up[at - 1].min(up[at] - distance(at - 1, at));
            }
            for (at, place) in row.iter().enumerate() {
                self.places[*place].y = f64::midpoint(down[at], up[at]);
            }
        }
    }

    fn finish(mut self, graph: &Graph, ways: Vec<Way>) -> Layout {
        let top = self.places.iter().map(|place| place.y - place.height() / 2.0).fold(f64::INFINITY, f64::min);
        self.places.iter_mut().for_each(|place| place.y += MARGIN - top);
        let bottom = self.places.iter().map(|place| place.y + place.height() / 2.0).fold(0.0, f64::max);
        let corner = |place: &Place| (left_of(place.layer), place.y - place.height() / 2.0);
        Layout {
            width: left_of(self.layers.len() - 1) + STEP_WIDTH + MARGIN,
            height: bottom + MARGIN,
            start: corner(&self.places[0]),
            steps: graph.ids().map(|step| corner(&self.places[self.of_step[usize::from(step)]])).collect(),
            edges: ways.into_iter().map(|way| Line { path: self.path(&way.places), edge: way.edge }).collect(),
        }
    }

    fn path(&self, way: &[usize]) -> String {
        let mut path = String::new();
        for (at, place) in way.iter().map(|place| &self.places[*place]).enumerate() {
            let (left, width) = match place.holds {
                Holds::Start => (left_of(0), START_WIDTH),
                Holds::Step(_) | Holds::Pass => (left_of(place.layer), STEP_WIDTH),
            };
            if at == 0 {
                let _ = write!(path, "M{:.1} {:.1}", left + width, place.y);
                continue;
            }
            // The arrow head needs a little room before the step.
            let end = if at == way.len() - 1 { left - 3.0 } else { left };
            let (from_x, from_y) = (left - GAP_ACROSS, self.places[way[at - 1]].y);
            let bend = GAP_ACROSS * 0.5;
            let (y, in_x, out_x) = (place.y, from_x + bend, left - bend);
            let _ = write!(path, "C{in_x:.1} {from_y:.1} {out_x:.1} {y:.1} {end:.1} {y:.1}");
            if place.holds == Holds::Pass {
                let _ = write!(path, "H{:.1}", left + width);
            }
        }
        path
    }
}

#[expect(clippy::cast_precision_loss, reason = "few layers")]
fn left_of(layer: usize) -> f64 {
    match layer {
        0 => MARGIN,
        _ => MARGIN + START_WIDTH + GAP_ACROSS + (layer - 1) as f64 * (STEP_WIDTH + GAP_ACROSS),
    }
}
