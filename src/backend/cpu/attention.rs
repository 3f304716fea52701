//! Attention of new positions to all earlier ones, straight from the paged cache.
//!
//! Not the projections around it. Softmax is computed online (Milakov and Gimelshein 2018), block after block of 32
//! absolute positions, so that a query's bits depend on nothing but its own sequence up to itself.

use super::exp::exp;
use super::isa::{Isa, for_each_isa};
use super::kv::KvCache;
use super::pool::{Parts, Pool};
use crate::backend::{BLOCK, BlockId};

/// Rows of queries that share one pass over a block.
const QUAD: usize = 4;
/// New positions of a sequence that make one task.
const SPAN: usize = 16;

/// The new positions of one sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span<'a> {
    /// Index of the first one among the rows of the batch.
    pub(super) row: usize,
    /// How many there are.
    pub(super) count: usize,
    /// Position of the first one.
    pub(super) start: usize,
    /// The block table.
    pub(super) blocks: &'a [BlockId],
}

/// Heads and their width.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    pub(super) query: usize,
    pub(super) kv: usize,
    pub(super) dim: usize,
}

/// Writes to `out` `(rows, query heads, dim)` what the queries, of the same shape and already scaled, gather from one
/// layer of the cache, in which the new positions are.
pub(super) fn attend(
    isa: Isa,
    pool: &Pool,
    heads: Heads,
    queries: &[f32],
    (cache, layer): (&KvCache, usize),
    spans: &[Span<'_>],
    out: &mut [f32],
) {
    let mut tasks = Vec::new();
    for span in spans {
        for first in (0..span.count).step_by(SPAN) {
            let part = Span {
                row: span.row + first,
                count: SPAN.min(span.count - first),
                start: span.start + first,
                blocks: span.blocks,
            };
            tasks.extend((0..heads.kv).map(|head| (part, head)));
        }
    }
    let (out, group) = (Parts::of(out), heads.query / heads.kv);
    // The last tasks have the most positions to look at: they go first.
    tasks.reverse();
    pool.each(tasks.len(), |task| {
        let (span, head) = tasks[task];
        let mut rows: Vec<Row<'_>> = (0..span.count * group)
            .map(|index| {
                let (new, member) = (index / group, index % group);
                let at = ((span.row + new) * heads.query + head * group + member) * heads.dim;
                // SAFETY: a row's query head belongs to one task.
                let sum = unsafe { out.part(at, heads.dim) };
                Row::new(&queries[at..at + heads.dim], span.start + new + 1, sum)
            })
            .collect();
        let last = (span.start + span.count).div_ceil(BLOCK);
        for (index, block) in span.blocks[..last].iter().enumerate() {
            let (keys, values) = cache.read(*block, layer, head);
            for rows in rows.chunks_mut(QUAD) {
                look(isa, rows, index * BLOCK, keys, values);
            }
        }
        for row in &mut rows {
            row.finish();
        }
    });
}

/// One query head of one position, and what it has gathered so far.
struct Row<'a> {
    query: &'a [f32],
    /// It sees the positions under this.
    end: usize,
    most: f32,
    total: f32,
    /// Sum of values, each weighted with e^(score - most).
    sum: &'a mut [f32],
}

impl<'a> Row<'a> {
    fn new(query: &'a [f32], end: usize, sum: &'a mut [f32]) -> Self {
        sum.fill(0.0);
        Self {
            query,
            end,
            most: f32::NEG_INFINITY,
            total: 0.0,
            sum,
        }
    }

    fn finish(&mut self) {
        for x in self.sum.iter_mut() {
            *x /= self.total;
        }
    }
}

/// Adds to the rows what they see of the block whose first position is `base`.
fn look(isa: Isa, rows: &mut [Row<'_>], base: usize, keys: &[f32], values: &[f32]) {
    match rows {
        // All four see the whole block: the common case, in which they share its loads.
        [a, b, c, d] if [&*a, b, c, d].iter().all(|row| row.end >= base + BLOCK) => {
            let mut scores = [[0.0; BLOCK]; QUAD];
            score(isa, [a.query, b.query, c.query, d.query], keys, &mut scores);
            for (row, scores) in [&mut *a, b, c, d].into_iter().zip(&mut scores) {
                weigh(isa, scores, &mut row.most, &mut row.total, row.sum);
            }
            let weights = scores.each_ref().map(|scores| scores.as_slice());
            gather(isa, weights, values, [a.sum, b.sum, c.sum, d.sum]);
        }
        rows => {
            for row in rows.iter_mut().filter(|row| row.end > base) {
                let seen = BLOCK.min(row.end - base);
                let mut scores = [[0.0; BLOCK]];
                score(isa, [row.query], keys, &mut scores);
                // What lies beyond may be anything, so it is not computed with.
                scores[0][seen..].fill(f32::NEG_INFINITY);
                weigh(isa, &mut scores[0], &mut row.most, &mut row.total, row.sum);
                gather(isa, [&scores[0][..seen]], values, [row.sum]);
            }
        }
    }
}

for_each_isa! {
    /// Scores of `N` queries `(dim,)` with the keys `(dim, BLOCK)` of a block.
    fn score<const N: usize>(queries: [&[f32]; N], keys: &[f32], scores: &mut [[f32; BLOCK]; N]) {
        let mut sums = [[0.0; BLOCK]; N];
        for (i, keys) in keys.as_chunks::<BLOCK>().0.iter().enumerate() {
            for (sums, query) in sums.iter_mut().zip(queries) {
                let q = query[i];
                for (sum, key) in sums.iter_mut().zip(keys) {
                    *sum = q.mul_add(*key, *sum);
                }
            }
        }
        *scores = sums;
    }
}

for_each_isa! {
    /// Turns scores into weights e^(score - most), for the largest score so far, and rescales to it what was summed
    /// under an earlier one. A score of minus infinity gets the weight 0.
    fn weigh(scores: &mut [f32; BLOCK], most: &mut f32, total: &mut f32, sum: &mut [f32]) {
        let mut tops = *scores;
        let mut width = BLOCK / 2;
        while width > 0 {
            for i in 0..width {
                tops[i] = if tops[i + width] > tops[i] { tops[i + width] } else { tops[i] };
            }
            width /= 2;
        }
        let new = if tops[0] > *most { tops[0] } else { *most };
        let shrink = exp(*most - new);
        for score in scores.iter_mut() {
            let weight = exp(*score - new);
            *score = if *score == f32::NEG_INFINITY { 0.0 } else { weight };
        }
        let mut parts = *scores;
        let mut width = BLOCK / 2;
        while width > 0 {
            for i in 0..width {
                parts[i] += parts[i + width];
            }
            width /= 2;
        }
        *total = total.mul_add(shrink, parts[0]);
        for x in sum.iter_mut() {
            *x *= shrink;
        }
        *most = new;
    }
}

for_each_isa! {
    /// Adds to `N` sums `(dim,)` the values `(BLOCK, dim)` of a block, each with its weight.
    fn gather<const N: usize>(weights: [&[f32]; N], values: &[f32], sums: [&mut [f32]; N]) {
        let mut sums = sums;
        let dim = sums[0].len();
        let seen = weights[0].len();
        let mut from = 0;
        while from + BLOCK <= dim {
            let mut local = [[0.0; BLOCK]; N];
            for (local, sum) in local.iter_mut().zip(&sums) {
                local.copy_from_slice(&sum[from..from + BLOCK]);
            }
            for i in 0..seen {
                let values = &values[i * dim + from..][..BLOCK];
                for (local, weights) in local.iter_mut().zip(weights) {
                    let weight = weights[i];
                    for (sum, value) in local.iter_mut().zip(values) {
                        *sum = weight.mul_add(*value, *sum);
                    }
                }
            }
            for (local, sum) in local.iter().zip(&mut sums) {
                sum[from..from + BLOCK].copy_from_slice(local);
            }
            from += BLOCK;
        }
        for (sum, weights) in sums.iter_mut().zip(weights) {
            for i in 0..seen {
                for (sum, value) in sum[from..].iter_mut().zip(&values[i * dim + from..(i + 1) * dim]) {
                    *sum = weights[i].mul_add(*value, *sum);
                }
            }
        }
    }
}
