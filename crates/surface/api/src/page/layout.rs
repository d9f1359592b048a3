//! Computes the positions of a workflow's steps in its drawing, layer by layer from left to right.
//!
//! A step's layer is its longest path from the start; an edge that crosses layers gets its own cell in each of them, so
//! that it never runs beneath a step. The order within a layer and the heights follow the means of the neighbours, over
//! a few sweeps: enough for drawings of a readable size.

use std::{fmt::Write as _, ops::Range};

use honeyflow_workflow::{Edge, Graph, StepId};

/// A workflow with more steps is not drawn; the page shows the number of its steps.
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
    /// The upper left corner of the box for the events that start a run.
    pub start: (f64, f64),
    /// The upper left corner of each step.
    pub steps: Vec<(f64, f64)>,
    pub edges: Vec<Line>,
}

pub(crate) struct Line {
    pub path: String,
    /// None: the line begins at the start box.
    pub edge: Option<Edge>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CellContent {
    Start,
    Step(StepId),
    /// An edge that crosses the layer.
    Pass,
}

struct Cell {
    content: CellContent,
    layer: usize,
    /// The vertical centre.
    y: f64,
    left: Vec<usize>,
    right: Vec<usize>,
}

impl Cell {
    fn height(&self) -> f64 {
        match self.content {
            CellContent::Start => START_HEIGHT,
            CellContent::Step(_) => STEP_HEIGHT,
            CellContent::Pass => PASS_HEIGHT,
        }
    }
}

/// Returns the layout; none if the workflow is too large for a readable drawing.
pub(crate) fn layout(graph: &Graph) -> Option<Layout> {
    let edge_count: usize = graph.ids().map(|step| graph.needs(step).len()).sum();
    if graph.steps.is_empty() || graph.steps.len() > STEPS_DRAWN_MAX || edge_count > EDGES_DRAWN_MAX {
        return None;
    }
    let mut layered = LayeredGraph::new(graph);
    let paths = layered.connect(graph);
    for _ in 0..SWEEPS {
        layered.order(|cell| &cell.left);
        layered.order(|cell| &cell.right);
    }
    layered.stack();
    for _ in 0..3 * SWEEPS {
        layered.relax(0..layered.layers.len());
    }
    layered.relax(0..1);
    Some(layered.finish(graph, paths))
}

struct LayeredGraph {
    cells: Vec<Cell>,
    /// The cells of each layer, from top to bottom.
    layers: Vec<Vec<usize>>,
    /// The cell of each step.
    of_step: Vec<usize>,
}

struct EdgePath {
    cells: Vec<usize>,
    edge: Option<Edge>,
}

impl LayeredGraph {
    fn new(graph: &Graph) -> LayeredGraph {
        let mut layer_of = vec![1_usize; graph.steps.len()];
        for step in graph.topological() {
            let needs = graph.needs(*step).iter();
            layer_of[usize::from(*step)] = needs.map(|(need, _)| layer_of[usize::from(*need)] + 1).max().unwrap_or(1);
        }
        let layer_count = layer_of.iter().max().map_or(1, |last| last + 1);
        let mut layered = LayeredGraph {
            cells: Vec::new(),
            layers: vec![Vec::new(); layer_count],
            of_step: vec![0; graph.steps.len()],
        };
        layered.add(CellContent::Start, 0);
        for step in graph.topological() {
            layered.of_step[usize::from(*step)] = layered.add(CellContent::Step(*step), layer_of[usize::from(*step)]);
        }
        layered
    }

    fn add(&mut self, content: CellContent, layer: usize) -> usize {
        self.cells.push(Cell { content, layer, y: 0.0, left: Vec::new(), right: Vec::new() });
        self.layers[layer].push(self.cells.len() - 1);
        self.cells.len() - 1
    }

    fn connect(&mut self, graph: &Graph) -> Vec<EdgePath> {
        let mut paths = Vec::new();
        for step in graph.ids() {
            let to = self.of_step[usize::from(step)];
            if graph.needs(step).is_empty() {
                paths.push(EdgePath { cells: self.edge_cells(0, to), edge: None });
            }
            for (need, edge) in graph.needs(step) {
                let from = self.of_step[usize::from(*need)];
                paths.push(EdgePath { cells: self.edge_cells(from, to), edge: Some(*edge) });
            }
        }
        paths
    }

    fn edge_cells(&mut self, from: usize, to: usize) -> Vec<usize> {
        let mut path_cells = vec![from];
        for layer in self.cells[from].layer + 1..self.cells[to].layer {
            path_cells.push(self.add(CellContent::Pass, layer));
        }
        path_cells.push(to);
        for pair in path_cells.windows(2) {
            self.cells[pair[0]].right.push(pair[1]);
            self.cells[pair[1]].left.push(pair[0]);
        }
        path_cells
    }

    /// Sorts each layer by the mean position of its neighbours on one side.
    #[expect(clippy::cast_precision_loss, reason = "positions within a layer")]
    fn order(&mut self, side: fn(&Cell) -> &Vec<usize>) {
        for layer in 0..self.layers.len() {
            let mut position = vec![0.0; self.cells.len()];
            for row in &self.layers {
                row.iter().enumerate().for_each(|(at, cell)| position[*cell] = at as f64 / row.len() as f64);
            }
            let mean = |cell: usize| {
                let neighbours = side(&self.cells[cell]);
                if neighbours.is_empty() {
                    return position[cell];
                }
                neighbours.iter().map(|other| position[*other]).sum::<f64>() / neighbours.len() as f64
            };
            let mut row: Vec<_> = self.layers[layer].iter().map(|cell| (mean(*cell), *cell)).collect();
            row.sort_by(|a, b| a.0.total_cmp(&b.0));
            self.layers[layer] = row.into_iter().map(|(_, cell)| cell).collect();
        }
    }

    /// Stacks the cells of each layer from top to bottom, centred.
    fn stack(&mut self) {
        for row in &self.layers {
            let total: f64 = row.iter().map(|cell| self.cells[*cell].height() + GAP_DOWN).sum::<f64>() - GAP_DOWN;
            let mut top = -total / 2.0;
            for cell in row {
                let height = self.cells[*cell].height();
                self.cells[*cell].y = top + height / 2.0;
                top += height + GAP_DOWN;
            }
        }
    }

    /// Moves each cell towards the mean of its neighbours. Pushing cells down and pushing them up both keep the
    /// distances, so the mean of the two results does too.
    #[expect(clippy::cast_precision_loss, reason = "few neighbours")]
    fn relax(&mut self, layers: Range<usize>) {
        for layer in layers {
            let row = self.layers[layer].clone();
            let target = |cell: &usize| {
                let cell = &self.cells[*cell];
                let neighbours: Vec<_> = cell.left.iter().chain(&cell.right).collect();
                if neighbours.is_empty() {
                    return cell.y;
                }
                neighbours.iter().map(|other| self.cells[**other].y).sum::<f64>() / neighbours.len() as f64
            };
            let targets: Vec<f64> = row.iter().map(target).collect();
            let distance =
                |a: usize, b: usize| f64::midpoint(self.cells[row[a]].height(), self.cells[row[b]].height()) + GAP_DOWN;
            let mut down = targets.clone();
            for at in 1..row.len() {
                down[at] = down[at].max(down[at - 1] + distance(at - 1, at));
            }
            let mut up = targets;
            for at in (1..row.len()).rev() {
                up[at - 1] = up[at - 1].min(up[at] - distance(at - 1, at));
            }
            for (at, cell) in row.iter().enumerate() {
                self.cells[*cell].y = f64::midpoint(down[at], up[at]);
            }
        }
    }

    fn finish(mut self, graph: &Graph, paths: Vec<EdgePath>) -> Layout {
        let top = self.cells.iter().map(|cell| cell.y - cell.height() / 2.0).fold(f64::INFINITY, f64::min);
        self.cells.iter_mut().for_each(|cell| cell.y += MARGIN - top);
        let bottom = self.cells.iter().map(|cell| cell.y + cell.height() / 2.0).fold(0.0, f64::max);
        let corner = |cell: &Cell| (left_of(cell.layer), cell.y - cell.height() / 2.0);
        Layout {
            width: left_of(self.layers.len() - 1) + STEP_WIDTH + MARGIN,
            height: bottom + MARGIN,
            start: corner(&self.cells[0]),
            steps: graph.ids().map(|step| corner(&self.cells[self.of_step[usize::from(step)]])).collect(),
            edges: paths
                .into_iter()
                .map(|edge_path| Line { path: self.path(&edge_path.cells), edge: edge_path.edge })
                .collect(),
        }
    }

    fn path(&self, path_cells: &[usize]) -> String {
        let mut path = String::new();
        for (at, cell) in path_cells.iter().map(|cell| &self.cells[*cell]).enumerate() {
            let (left, width) = match cell.content {
                CellContent::Start => (left_of(0), START_WIDTH),
                CellContent::Step(_) | CellContent::Pass => (left_of(cell.layer), STEP_WIDTH),
            };
            if at == 0 {
                let _ = write!(path, "M{:.1} {:.1}", left + width, cell.y);
                continue;
            }
            // The arrow head needs a little room before the step.
            let end = if at == path_cells.len() - 1 { left - 3.0 } else { left };
            let (from_x, from_y) = (left - GAP_ACROSS, self.cells[path_cells[at - 1]].y);
            let bend = GAP_ACROSS * 0.5;
            let (y, in_x, out_x) = (cell.y, from_x + bend, left - bend);
            let _ = write!(path, "C{in_x:.1} {from_y:.1} {out_x:.1} {y:.1} {end:.1} {y:.1}");
            if cell.content == CellContent::Pass {
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
