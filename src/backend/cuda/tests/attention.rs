//! Attention: the two ways give the same bits, which are those of a softmax in double precision within rounding.
//! Not what writes the cache (that is `rows`).

use half::f16;

use super::super::device::{Address, Argument, Device, Head, Kernel, upload};
use super::super::pass::{Pass, Shape};
use super::{Emulator, floats, halves, in_all_orders, near, numbers, read};
use crate::backend::{BLOCK, BlockId, Step};
use crate::rng;

/// A cache of one layer, whose blocks hold seeded keys and values; what no row sees is not a number.
struct Case {
    head: Head,
    heads: usize,
    kv_heads: usize,
    /// Starts and numbers of new tokens of the steps.
    steps: Vec<(usize, usize)>,
}

impl Case {
    fn stride(&self) -> usize {
        2 * self.kv_heads * BLOCK * self.head.dim()
    }

    fn key(&self, step: usize, kv: usize, position: usize) -> Vec<f32> {
        let stream = ((step * 8 + kv) * 4096 + position) as u64;
        floats(&halves(&numbers(2 * stream, self.head.dim())))
    }

    fn value(&self, step: usize, kv: usize, position: usize) -> Vec<f32> {
        let stream = ((step * 8 + kv) * 4096 + position) as u64;
        floats(&halves(&numbers(2 * stream + 1, self.head.dim())))
    }

    /// Tables of blocks, in no order.
    fn tables(&self) -> Vec<Vec<BlockId>> {
        let count = |(start, new): &(usize, usize)| (start + new).div_ceil(BLOCK);
        let total: usize = self.steps.iter().map(count).sum();
        let mut all: Vec<u32> = (0..total as u32).collect();
        all.sort_by_key(|id| rng::value(3, 3, u64::from(*id)));
        let mut ids = all.into_iter().map(BlockId);
        self.steps
            .iter()
            .map(|step| ids.by_ref().take(count(step)).collect())
            .collect()
    }

    fn cache(&self, tables: &[Vec<BlockId>]) -> Vec<u16> {
        let dim = self.head.dim();
        let total: usize = tables.iter().map(Vec::len).sum();
        let mut cache = vec![f16::NAN.to_bits(); total * self.stride()];
        for (step, (start, new)) in self.steps.iter().enumerate() {
            for position in 0..start + new {
                let block = tables[step][position / BLOCK].0 as usize;
                for kv in 0..self.kv_heads {
                    let at = block * self.stride() + kv * 2 * BLOCK * dim;
                    let (key, value) = (self.key(step, kv, position), self.value(step, kv, position));
                    let place = position % BLOCK;
                    cache[at + place * dim..][..dim].copy_from_slice(&halves(&key));
                    for (i, x) in halves(&value).into_iter().enumerate() {
                        cache[at + BLOCK * dim + i * BLOCK + place] = x;
                    }
                }
            }
        }
        cache
    }

    fn run(&self, device: &mut Emulator, whole: bool, queries: &[u16]) -> Vec<u16> {
        let (dim, group) = (self.head.dim(), self.heads / self.kv_heads);
        let tables = self.tables();
        let most = self.steps.iter().map(|step| step.1).max().unwrap();
        let tokens = vec![0; most];
        let steps: Vec<Step<'_>> = self
            .steps
            .iter()
            .zip(&tables)
            .map(|((start, new), blocks)| Step {
                tokens: &tokens[..*new],
                start: *start,
                blocks,
                logits: 0,
            })
            .collect();
        let pass = Pass::cut(&steps, group).remove(0);
        let Shape {
            rows, tiles, parts, ..
        } = pass.shape();
        let cache = upload(device, &self.cache(&tables)).unwrap();
        let out = device.allocate(2 * rows * self.heads * dim).unwrap();
        let partial = device
            .allocate(4 * rows * self.heads * parts * (dim + 2))
            .unwrap();
        let mut arguments: Vec<Argument> = vec![
            upload(device, queries).unwrap().into(),
            cache.into(),
            upload(device, &pass.tiles).unwrap().into(),
            upload(device, &pass.tables).unwrap().into(),
            if whole { out } else { partial }.into(),
            self.heads.into(),
            self.kv_heads.into(),
            self.stride().into(),
            (1.0 / (dim as f32).sqrt()).into(),
        ];
        if whole {
            let grid = [tiles, self.kv_heads, 1];
            device
                .launch(Kernel::AttentionWhole(self.head), grid, &arguments)
                .unwrap();
        } else {
            arguments.push(parts.into());
            let grid = [tiles, self.kv_heads, parts];
            device
                .launch(Kernel::AttentionSplit(self.head), grid, &arguments)
                .unwrap();
            let places: Address = upload(device, &pass.places).unwrap();
            let arguments = [
                partial.into(),
                places.into(),
                out.into(),
                self.heads.into(),
                parts.into(),
            ];
            let grid = [rows, self.heads, 1];
            device
                .launch(Kernel::AttentionFold(self.head), grid, &arguments)
                .unwrap();
        }
        read(device, out, rows * self.heads * dim)
    }

    /// Softmax as the textbook has it.
    fn expected(&self, queries: &[f32]) -> Vec<f64> {
        let (dim, group) = (self.head.dim(), self.heads / self.kv_heads);
        let mut out = Vec::new();
        let mut queries = queries.chunks_exact(dim);
        for (step, (start, new)) in self.steps.iter().enumerate() {
            for position in *start..start + new {
                for head in 0..self.heads {
                    let q = queries.next().unwrap();
                    let dot = |key: Vec<f32>| {
                        let products = q.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(k));
                        products.sum::<f64>() / (dim as f64).sqrt()
                    };
                    let scores: Vec<f64> = (0..=position)
                        .map(|p| dot(self.key(step, head / group, p)))
                        .collect();
                    let most = scores.iter().copied().fold(f64::MIN, f64::max);
                    let total: f64 = scores.iter().map(|s| (s - most).exp()).sum();
                    let mut sum = vec![0.0; dim];
                    for (p, score) in scores.iter().enumerate() {
                        let weight = (score - most).exp() / total;
                        let value = self.value(step, head / group, p);
                        sum.iter_mut()
                            .zip(value)
                            .for_each(|(s, v)| *s += weight * f64::from(v));
                    }
                    out.extend(sum);
                }
            }
        }
        out
    }

    fn check(&self) {
        let rows: usize = self.steps.iter().map(|step| step.1).sum();
        // Large enough that some positions weigh much more than others.
        let queries: Vec<f32> = numbers(77, rows * self.heads * self.head.dim())
            .iter()
            .map(|x| 4.0 * x)
            .collect();
        let queries = halves(&queries);
        let split = in_all_orders(|device| self.run(device, false, &queries));
        let whole = in_all_orders(|device| self.run(device, true, &queries));
        assert!(split == whole, "the two ways differ");
        near(&floats(&split), &self.expected(&floats(&queries)), 2e-3);
    }
}

#[test]
fn both_ways_are_a_softmax_over_the_positions_up_to_its_own() {
    for (head, heads, kv_heads, steps) in [
        (Head::D64, 2, 1, vec![(0, 1)]),
        (Head::D64, 14, 2, vec![(0, 5), (40, 1), (126, 3)]),
        (Head::D128, 5, 1, vec![(250, 9), (0, 33)]),
        (Head::D128, 8, 2, vec![(383, 1), (128, 1), (127, 1), (31, 2)]),
        (Head::D64, 16, 1, vec![(3, 2)]),
    ] {
        let case = Case {
            head,
            heads,
            kv_heads,
            steps,
        };
        case.check();
    }
}
