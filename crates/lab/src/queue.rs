//! What is going to happen, in order: by time, and at one time in the order in
//! which it was said.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Microseconds of a world's time.
pub type Micros = u64;

#[derive(Debug)]
pub struct Queue<T> {
    heap: BinaryHeap<Reverse<Item<T>>>,
    /// How many were ever added.
    count: u64,
}

#[derive(Debug)]
struct Item<T> {
    at: Micros,
    number: u64,
    what: T,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue { heap: BinaryHeap::new(), count: 0 }
    }
}

impl<T> Queue<T> {
    pub fn add(&mut self, at: Micros, what: T) {
        self.heap.push(Reverse(Item { at, number: self.count, what }));
        self.count += 1;
    }

    /// When the next thing happens.
    pub fn next_at(&self) -> Option<Micros> {
        self.heap.peek().map(|Reverse(item)| item.at)
    }

    /// What happens next, and when.
    pub fn next(&mut self) -> Option<(Micros, T)> {
        self.heap.pop().map(|Reverse(item)| (item.at, item.what))
    }
}

impl<T> Ord for Item<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<T> PartialOrd for Item<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Item<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Item<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_decides_and_then_the_order_of_adding() {
        let mut queue = Queue::default();
        for (at, what) in [(5, 'a'), (3, 'b'), (5, 'c'), (3, 'd')] {
            queue.add(at, what);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(order, [(3, 'b'), (3, 'd'), (5, 'a'), (5, 'c')]);
    }
}
