//! A list that grows without moving what it holds.
//!
//! A vector that is full copies all its items to a larger one. That takes a
//! tenth of a second for some millions of nodes, while the thread answers
//! nobody, and needs the memory twice.

use std::iter::repeat_n;
use std::ops::{Index, IndexMut};

/// Items of one piece.
const PIECE_LEN: usize = 4096;

/// A list in pieces. All are full but the last.
#[derive(Clone, Debug)]
pub(crate) struct Pieces<T> {
    pieces: Vec<Vec<T>>,
    len: usize,
}

impl<T> Pieces<T> {
    pub fn new() -> Self {
        Pieces { pieces: Vec::new(), len: 0 }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn push(&mut self, item: T) {
        if self.len.is_multiple_of(PIECE_LEN) {
            self.pieces.push(Vec::with_capacity(PIECE_LEN));
        }
        self.pieces[self.len / PIECE_LEN].push(item);
        self.len += 1;
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }
}

impl<T: Clone> Pieces<T> {
    /// A list of `len` times the same.
    pub fn of(item: T, len: usize) -> Self {
        let mut pieces = Pieces::new();
        repeat_n(item, len).for_each(|item| pieces.push(item));
        pieces
    }
}

impl<T> Index<usize> for Pieces<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.pieces[at / PIECE_LEN][at % PIECE_LEN]
    }
}

impl<T> IndexMut<usize> for Pieces<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.pieces[at / PIECE_LEN][at % PIECE_LEN]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_stay_where_they_are_while_others_come() {
        let mut pieces = Pieces::of(0, 1);
        let first: *const usize = &pieces[0];
        for at in 1..3 * PIECE_LEN + 7 {
            pieces.push(at);
        }
        pieces[PIECE_LEN] += 1;
        assert_eq!(pieces.len(), 3 * PIECE_LEN + 7);
        assert!(std::ptr::eq(first, &pieces[0]));
        let read: Vec<usize> = (0..pieces.len()).map(|at| pieces[at]).collect();
        assert!(pieces.iter().eq(&read));
        assert_eq!(
            read[PIECE_LEN - 1..PIECE_LEN + 2],
            [PIECE_LEN - 1, PIECE_LEN + 1, PIECE_LEN + 1]
        );
    }
}
