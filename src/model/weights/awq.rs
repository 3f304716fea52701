//! A linear layer in AutoAWQ's `gemm` layout: what its three tensors mean.
//!
//! Not the file they come from, and not how a backend lays them out.

/// In which order the eight numbers of a word hold output columns: bits `4 k ..` hold column `ORDER[k]`.
const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// 4-bit weights `(rows, cols)`: `weight[o][i] = (q[i][o] - z[i / group][o]) * scale[i / group][o]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Awq {
    /// Outputs; a multiple of 8.
    pub rows: usize,
    /// Inputs; a multiple of `group`.
    pub cols: usize,
    /// Inputs that share a scale and a zero point.
    pub group: usize,
    /// `qweight` `(cols, rows / 8)`, little-endian words.
    pub qweight: Vec<u32>,
    /// `qzeros` `(cols / group, rows / 8)`.
    pub qzeros: Vec<u32>,
    /// `scales` `(cols / group, rows)`, float16 bits.
    pub scales: Vec<u16>,
}

impl Awq {
    /// All zeros; `rows` is a multiple of 8 and `cols` one of `group`.
    pub fn zeroed(rows: usize, cols: usize, group: usize) -> Self {
        Self {
            rows,
            cols,
            group,
            qweight: vec![0; cols * rows / 8],
            qzeros: vec![0; cols / group * rows / 8],
            scales: vec![0; cols / group * rows],
        }
    }

    /// Puts the number of output `row` into a line of words with eight outputs each, where it is zero.
    pub fn put(words: &mut [u32], row: usize, number: u8) {
        words[row / 8] |= u32::from(number) << (4 * place(row));
    }

    /// The number, 0 to 15, of output `row` and input `col`.
    pub fn quant(&self, row: usize, col: usize) -> u8 {
        number(&self.qweight, self.rows, row, col)
    }

    /// The numbers of input `col` for the outputs from `row`, a multiple of 8, on.
    pub fn eight(&self, row: usize, col: usize) -> [u8; 8] {
        let word = self.qweight[(col * self.rows + row) / 8];
        let mut numbers = [0; 8];
        for (place, column) in ORDER.into_iter().enumerate() {
            numbers[column] = (word >> (4 * place) & 15) as u8;
        }
        numbers
    }

    /// The zero point, 0 to 15, of output `row` in a group of inputs.
    pub fn zero(&self, row: usize, group: usize) -> u8 {
        number(&self.qzeros, self.rows, row, group)
    }

    /// The scale, as float16 bits, of output `row` in a group of inputs.
    pub fn scale(&self, row: usize, group: usize) -> u16 {
        self.scales[group * self.rows + row]
    }

    /// All numbers `(rows, cols)`.
    pub fn decode(&self) -> Vec<f32> {
        let mut numbers = Vec::with_capacity(self.rows * self.cols);
        for row in 0..self.rows {
            for col in 0..self.cols {
                let group = col / self.group;
                let steps = i16::from(self.quant(row, col)) - i16::from(self.zero(row, group));
                numbers.push(f32::from(steps) * half::f16::from_bits(self.scale(row, group)).to_f32());
            }
        }
        numbers
    }
}

/// Row `line` of packed words with eight numbers each, at output `column`.
fn number(words: &[u32], columns: usize, column: usize, line: usize) -> u8 {
    (words[line * columns / 8 + column / 8] >> (4 * place(column)) & 15) as u8
}

/// The place of an output within its word, the inverse of [`ORDER`]: even columns come first.
fn place(column: usize) -> usize {
    let place = (column % 8) / 2 + (column % 2) * 4;
    debug_assert_eq!(ORDER[place], column % 8);
    place
}
