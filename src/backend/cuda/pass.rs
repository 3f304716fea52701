//! What a pass must know besides weights and numbers: which token, where, and who attends to what.
//!
//! Not on the device yet: `Pass` is a few lists of integers that are made here and copied in one piece.

use crate::backend::{BLOCK, Step};

/// Rows of a pass: more new tokens than this are computed one pass after the other.
pub(super) const MOST_ROWS: usize = 512;
/// Pairs of a row and a head in one tile of `attention.cu`.
pub(super) const PAIRS: usize = 16;

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

    pub(super) fn rows(&self) -> usize {
        self.tokens.len()
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
        assert_eq!(passes.iter().map(Pass::rows).collect::<Vec<_>>(), [512, 512, 80]);
        assert_eq!(passes.iter().map(|pass| pass.picks.len()).sum::<usize>(), 602);
        let first = &passes[0];
        assert_eq!(first.tokens[..5], [0, 1, 2, 0, 1]);
        assert_eq!(first.places[..8], [70, 37, 71, 37, 72, 37, 5, 39]);
        assert_eq!(first.tiles[..12], [0, 3, 70, 0, 3, 3, 5, 3, 6, 3, 8, 3]);
        assert_eq!(first.tables[..5], [39, 38, 37, 39, 38]);
        assert_eq!(first.picks[..2], [2, 503]);
        let last = &passes[2];
        assert_eq!((last.rows(), last.picks[0], last.picks[79]), (80, 0, 79));
        assert_eq!(last.places[158..], [31, 39]);
        assert_eq!(last.end, 1105);
    }
}
