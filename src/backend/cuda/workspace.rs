//! The activations of a pass and its lists, allocated once.
//!
//! Not weights, and not keys and values.

use super::device::{Address, Device};
use super::pass::{MOST_ROWS, Pass};
use crate::backend::BackendError;
use crate::model::config::Config;

/// Where a pass's numbers lie: `(rows, width)` each, for up to [`MOST_ROWS`].
#[derive(Debug)]
pub(super) struct Workspace {
    /// fp32, `hidden`.
    pub(super) residual: Address,
    /// fp32, `hidden`: what a block of the decoder adds to it.
    pub(super) change: Address,
    /// fp16, `hidden`.
    pub(super) normed: Address,
    /// fp32: queries, keys and values.
    pub(super) projected: Address,
    /// fp16, `heads * head_dim`.
    pub(super) queries: Address,
    /// fp16, the same.
    pub(super) attended: Address,
    /// fp32: partial results of attention.
    pub(super) partial: Address,
    pub(super) partial_numbers: usize,
    /// fp32, `2 * feed_forward`.
    pub(super) gate_up: Address,
    /// fp16, `feed_forward`, with a factor per row.
    pub(super) activated: Address,
    pub(super) factors: Address,
    /// fp32 `(LOGIT_ROWS, vocab)`.
    pub(super) logits: Address,
    /// int `(LOGIT_ROWS, 2)`: the token of the largest logit, and how many are not finite.
    pub(super) largest: Address,
    /// The lists of a [`Pass`], one behind the other in `lists`.
    pub(super) tokens: Address,
    pub(super) places: Address,
    pub(super) picks: Address,
    pub(super) tiles: Address,
    pub(super) tables: Address,
    lists: Address,
    lists_len: usize,
}

/// Rows of logits that are computed at a time.
pub(super) const LOGIT_ROWS: usize = 64;
/// Rows for whose partial results of attention there is room.
const PARTIAL_ROWS: usize = 32;
/// Positions that such rows may look at.
const PARTIAL_POSITIONS: usize = 4096;

/// Bytes of each piece of memory, in the order of [`Workspace::new`].
fn sizes(config: &Config) -> [usize; 12] {
    let Config {
        hidden,
        heads,
        kv_heads,
        head_dim,
        feed_forward,
        vocab,
        ..
    } = config;
    let wide = heads * head_dim;
    let per_row = [
        4 * hidden,
        4 * hidden,
        2 * hidden,
        4 * (wide + 2 * kv_heads * head_dim),
        2 * wide,
        2 * wide,
        8 * feed_forward,
        2 * feed_forward,
        4,
    ];
    let mut sizes = [0; 12];
    for (size, bytes) in sizes.iter_mut().zip(per_row) {
        *size = bytes * MOST_ROWS;
    }
    sizes[9] = 4 * partial_numbers(config);
    sizes[10] = 4 * LOGIT_ROWS * vocab;
    sizes[11] = 8 * LOGIT_ROWS;
    sizes
}

fn partial_numbers(config: &Config) -> usize {
    PARTIAL_ROWS * config.heads * PARTIAL_POSITIONS / 128 * (config.head_dim + 2)
}

impl Workspace {
    /// Bytes that a model needs, its lists not counted.
    pub(super) fn bytes(config: &Config) -> usize {
        sizes(config).iter().sum()
    }

    pub(super) fn new(device: &mut dyn Device, config: &Config) -> Result<Self, BackendError> {
        let mut at = [Address::NULL; 12];
        for (at, bytes) in at.iter_mut().zip(sizes(config)) {
            *at = device.allocate(bytes)?;
        }
        let [
            residual,
            change,
            normed,
            projected,
            queries,
            attended,
            gate_up,
            activated,
            factors,
            partial,
            logits,
            largest,
        ] = at;
        Ok(Self {
            residual,
            change,
            normed,
            projected,
            queries,
            attended,
            partial,
            partial_numbers: partial_numbers(config),
            gate_up,
            activated,
            factors,
            logits,
            largest,
            tokens: Address::NULL,
            places: Address::NULL,
            picks: Address::NULL,
            tiles: Address::NULL,
            tables: Address::NULL,
            lists: Address::NULL,
            lists_len: 0,
        })
    }

    /// Copies a pass's lists to the device, in one piece. They lie where those of any other pass do, so that a recorded
    /// pass finds them.
    pub(super) fn write(&mut self, device: &mut dyn Device, pass: &Pass) -> Result<(), BackendError> {
        let room = [1, 2, 1, 4].map(|per_row| per_row * MOST_ROWS);
        let fixed: usize = room.iter().sum();
        let needed = fixed + pass.tables.len();
        if needed > self.lists_len {
            if self.lists != Address::NULL {
                device.free(self.lists)?;
                device.forget();
            }
            self.lists_len = (2 * needed).max(16 * MOST_ROWS);
            self.lists = device.allocate(4 * self.lists_len)?;
            let mut next = self.lists;
            let mut place = |numbers: usize| {
                let at = next;
                next = next.of::<i32>(numbers);
                at
            };
            [self.tokens, self.places, self.picks, self.tiles] = room.map(&mut place);
            self.tables = place(0);
        }
        let mut all = Vec::with_capacity(needed);
        let lists = [&pass.tokens, &pass.places, &pass.picks, &pass.tiles];
        let mut end = 0;
        for (list, room) in lists.into_iter().zip(room) {
            end += room;
            all.extend_from_slice(list);
            all.resize(end, 0);
        }
        all.extend_from_slice(&pass.tables);
        device.write(self.lists, bytemuck::cast_slice(&all))
    }
}
