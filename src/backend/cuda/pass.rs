//! What a pass must know besides weights and numbers: which token, where, and who attends to what.
//!
//! Not on the device yet: `Pass` is a few lists of integers that are made here and copied in one piece.

use crate::backend::{BLOCK, Step};

/// Rows of a pass: more new tokens than this are computed one pass after the other.
pub(super) const MOST_ROWS: usize = 512;
/// Pairs of a row and a head in one tile of `attention.cu`.
pub(super) const PAIRS: usize = 16;

/// Rows of passes that are recorded once and replayed: these and, padded, all below. A pass of more rows is busy for
/// longer than its launches take.
const RECORDED: [usize; 9] = [1, 2, 4, 8, 16, 24, 32, 48, 64];
/// Positions of a part in `attention.cu`.
pub(super) const PART: usize = 128;

/// How many of everything a pass has: what decides which kernels run, over which grids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) rows: usize,
    /// Rows whose logits are wanted.
    pub(super) picks: usize,
    pub(super) tiles: usize,
    /// Parts of the positions that the furthest row looks at.
    pub(super) parts: usize,
}

impl Shape {
    /// A number for passes that run the same kernels over the same grids.
    pub(super) fn key(self) -> u64 {
        (self.rows * 1_000_000 + self.parts) as u64
    }
}

/// The new tokens of one step that a pass computes.
#[derive(Clone, Copy, Debug)]
struct Span<'a> {
    step: &'a Step<'a>,
    /// Of the step's tokens, the first and the one past the last.
    from: usize,
    to: usize,
}

/// The rows of a pass.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// `(rows,)` token ids.
    pub(super) tokens: Vec<i32>,
    /// `(rows, 2)`: position, and the block that holds it.
    pub(super) places: Vec<i32>,
    /// Rows whose logits are wanted, ascending.
    pub(super) picks: Vec<i32>,
    /// `(tiles, 4)`; see `attention.cu`.
    pub(super) tiles: Vec<i32>,
    /// Block tables, one after the other.
    pub(super) tables: Vec<i32>,
    /// Positions that the furthest row looks at.
    pub(super) end: usize,
}

impl Pass {
    /// Cuts the steps of a batch, which were checked, into passes; `group` query heads share a key-value head. Steps
    /// lie in their order, rows ascending, so that the picked rows of all passes are the batch's logits in order.
    pub(super) fn cut(batch: &[Step<'_>], group: usize) -> Vec<Self> {
        let mut passes = Vec::new();
        let mut spans: Vec<Span<'_>> = Vec::new();
        let mut room = MOST_ROWS;
        for step in batch {
            let mut from = 0;
            while from < step.tokens.len() {
                let to = step.tokens.len().min(from + room);
                spans.push(Span { step, from, to });
                room -= to - from;
                from = to;
                if room == 0 {
                    passes.push(Self::of(&spans, group));
                    spans.clear();
                    room = MOST_ROWS;
                }
            }
        }
        if !spans.is_empty() {
            passes.push(Self::of(&spans, group));
        }
        passes
    }

    fn of(spans: &[Span<'_>], group: usize) -> Self {
        let mut pass = Self::default();
        for Span { step, from, to } in spans {
            let (first, table) = (pass.tokens.len(), pass.tables.len());
            let end = step.start + to;
            pass.end = pass.end.max(end);
            let blocks = step.blocks[..end.div_ceil(BLOCK)].iter();
            pass.tables.extend(blocks.map(|block| block.0.cast_signed()));
            pass.tokens
                .extend(step.tokens[*from..*to].iter().map(|id| id.cast_signed()));
            for index in *from..*to {
                let position = step.start + index;
                let block = step.blocks[position / BLOCK].0.cast_signed();
                pass.places.extend([position as i32, block]);
                if index >= step.tokens.len() - step.logits {
                    pass.picks.push((first + index - from) as i32);
                }
            }
            let rows = PAIRS / group;
            for at in (*from..*to).step_by(rows) {
                let tile = [first + at - from, rows.min(to - at), step.start + at, table];
                pass.tiles.extend(tile.map(|number| number as i32));
            }
        }
        pass
    }

    pub(super) fn shape(&self) -> Shape {
        Shape {
            rows: self.tokens.len(),
            picks: self.picks.len(),
            tiles: self.tiles.len() / 4,
            parts: self.end.div_ceil(PART),
        }
    }

    /// Adds rows that nobody asked for, up to a shape that few passes differ in; `None` where that is not worth it.
    /// The rows write to the block `spare` and attend to nothing.
    pub(super) fn pad(&mut self, spare: usize) -> Option<Shape> {
        let rows = RECORDED.into_iter().find(|rows| *rows >= self.tokens.len())?;
        self.tokens.resize(rows, 0);
        while self.places.len() < 2 * rows {
            self.places.extend([0, spare as i32]);
        }
        self.picks.resize(rows, 0);
        self.tiles.resize(4 * rows, 0);
        Some(Shape {
            rows,
            picks: rows,
            tiles: rows,
            parts: self.end.div_ceil(PART).next_power_of_two(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BlockId;

    #[test]
    fn rows_keep_their_order_whatever_the_cuts() {
        let tokens: Vec<u32> = (0..1200).collect();
        let blocks: Vec<BlockId> = (0..40).rev().map(BlockId).collect();
        let step = |count: usize, start, logits| Step {
            tokens: &tokens[..count],
            start,
            blocks: &blocks,
            logits,
        };
        let passes = Pass::cut(&[step(3, 70, 1), step(1100, 5, 600), step(1, 31, 1)], 5);
        assert_eq!(
            passes.iter().map(|pass| pass.shape().rows).collect::<Vec<_>>(),
            [512, 512, 80]
        );
        assert_eq!(passes.iter().map(|pass| pass.picks.len()).sum::<usize>(), 602);
        let first = &passes[0];
        assert_eq!(first.tokens[..5], [0, 1, 2, 0, 1]);
        assert_eq!(first.places[..8], [70, 37, 71, 37, 72, 37, 5, 39]);
        assert_eq!(first.tiles[..12], [0, 3, 70, 0, 3, 3, 5, 3, 6, 3, 8, 3]);
        assert_eq!(first.tables[..5], [39, 38, 37, 39, 38]);
        assert_eq!(first.picks[..2], [2, 503]);
        let last = &passes[2];
        assert_eq!((last.shape().rows, last.picks[0], last.picks[79]), (80, 0, 79));
        assert_eq!(last.places[158..], [31, 39]);
        assert_eq!(last.end, 1105);
    }

    #[test]
    fn padded_passes_have_few_shapes() {
        let tokens = [5; 40];
        let blocks: Vec<BlockId> = (0..20).map(BlockId).collect();
        let of = |count: usize, start| {
            let step = Step {
                tokens: &tokens[..count],
                start,
                blocks: &blocks,
                logits: 1,
            };
            Pass::cut(&[step, step], 4).remove(0)
        };
        let mut pass = of(3, 300);
        let shape = pass.pad(99).unwrap();
        assert_eq!((shape.rows, shape.picks, shape.tiles, shape.parts), (8, 8, 8, 4));
        assert_eq!(pass.places[12..], [0, 99, 0, 99]);
        assert_eq!(
            (pass.picks[..3].to_vec(), pass.tiles[8..12].to_vec()),
            (vec![2, 5, 0], vec![0; 4])
        );
        assert_eq!(pass.shape().rows, 8);
        assert_eq!(of(4, 400).pad(99).unwrap().key(), shape.key());
        assert_ne!(of(4, 600).pad(99).unwrap().key(), shape.key());
        assert_eq!(of(40, 0).pad(99), None);
    }
}
